"""An API server in memory, as far as the product asks one: objects, four ways to change them, refusals, and trouble.

It answers in the words of the real one: `tests/kubernetes/test_simulated_cluster.py` asks both the same questions and
compares. What it does not do: validation, defaults, subresources but eviction, watches, lists in pieces.
"""

from __future__ import annotations

import copy
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from autotuner.ports import Clock

Object = dict[str, Any]
Answer = tuple[int, Object]

PATH = re.compile(
    r"(?:/api/v1|/apis/(?P<group>[^/]+)/[^/]+)(?:/namespaces/(?P<namespace>[^/]+)(?=/))?"
    r"/(?P<plural>[^/]+)(?:/(?P<name>[^/]+))?(?:/(?P<sub>[^/]+))?"
)
VERBS = {"POST": "create", "PATCH": "patch", "DELETE": "delete"}
REVIEWS = "selfsubjectaccessreviews"


class Away(Exception):
    """Nobody answers."""


class _Failure(Exception):
    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "metadata": {}}
        self.answer: Answer = (code, {**status, "message": message, "reason": reason, "code": code})


@dataclass(frozen=True)
class Place:
    """What a path means. namespace: empty for what is in none; name: empty for all of a kind."""

    group: str
    plural: str
    namespace: str
    name: str = ""

    @property
    def resource(self) -> str:
        """As messages name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


@dataclass(frozen=True)
class Request:
    """One request. user: empty for the administrator, whom nothing is refused."""

    method: str
    place: Place
    sub: str
    query: Mapping[str, str]
    body: Any
    media: str
    user: str

    @property
    def verb(self) -> str:
        """What a role calls it."""
        if self.method == "GET":
            return "get" if self.place.name else "list"
        return VERBS[self.method]


Hook = Callable[[Request], Answer | None]
"""What stands between a client and the server: an answer in its place, None to let the request through."""


@dataclass
class SimulatedApiServer:
    """One API server; not for several threads at once.

    roles: the rules of each user, by namespace. between: may answer in place of the server, or raise Away. controllers:
    run after every change and before every request, as if they had had the time.
    """

    clock: Clock
    roles: dict[tuple[str, str], list[Object]] = field(default_factory=dict)
    between: list[Hook] = field(default_factory=list)
    controllers: list[Callable[[], None]] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    _objects: dict[Place, Object] = field(default_factory=dict)
    _owned: dict[Place, dict[str, dict[tuple[str, ...], Any]]] = field(default_factory=dict)
    _revision: int = 0

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        media: str = "application/json",
        user: str = "",
    ) -> Answer:
        """Return status and object, which is to be copied. Raises Away when nobody answers."""
        request = _request(method, path, body, media, user)
        self.requests.append(request)
        for hook in self.between if user else ():
            instead = hook(request)
            if instead is not None:
                return instead
        for control in self.controllers:
            control()
        try:
            self._authorize(request)
            return self._do(request)
        except _Failure as failure:
            return failure.answer

    # -- for controllers and tests -------------------------------------------------------------------------

    def of(self, plural: str, namespace: str = "") -> Iterator[tuple[Place, Object]]:
        """All objects of a kind, oldest first; those of one namespace, if it is named. They may be changed in place."""
        for place, found in list(self._objects.items()):
            if place.plural == plural and (not namespace or place.namespace == namespace):
                yield place, found

    def make(self, place: Place, content: Object) -> Object:
        """Make an object, with what the server adds to it."""
        metadata = content.setdefault("metadata", {})
        self._revision += 1
        metadata.update(
            name=place.name,
            uid=str(uuid.uuid5(uuid.NAMESPACE_OID, f"{place}{self._revision}")),
            creationTimestamp=self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ"),
            resourceVersion=str(self._revision),
            generation=1,
        )
        if place.namespace:
            metadata["namespace"] = place.namespace
        self._objects[place] = content
        return content

    def drop(self, place: Place) -> None:
        """Remove an object and, as the garbage collector does, what it owned."""
        gone = self._objects.pop(place, None)
        self._owned.pop(place, None)
        if gone is None:
            return
        uid = gone["metadata"]["uid"]
        for other, found in list(self._objects.items()):
            owners = found["metadata"].get("ownerReferences", [])
            if any(owner["uid"] == uid for owner in owners):
                self.drop(other)

    # -- requests ------------------------------------------------------------------------------------------

    def _authorize(self, request: Request) -> None:
        verbs = [request.verb]
        if request.media.startswith("application/apply") and request.place not in self._objects:
            verbs.append("create")
        for verb in verbs:
            if request.user and request.place.plural != REVIEWS and not self._allows(request, verb):
                raise _Failure(403, "Forbidden", _forbidden(request, verb))

    def _allows(self, request: Request, verb: str) -> bool:
        place = request.place
        return self.permits(request.user, verb, place.group, place.plural, place.namespace)

    def permits(self, user: str, verb: str, group: str, plural: str, namespace: str) -> bool:
        """Say whether a user's rules allow a verb."""
        rules = self.roles.get((user, namespace), [])
        return any(
            group in rule["apiGroups"] and plural in rule["resources"] and verb in rule["verbs"]
            for rule in rules
        )

    def _do(self, request: Request) -> Answer:
        if request.place.plural == REVIEWS:
            return self._reviewed(request)
        if request.method == "GET":
            return self._get(request) if request.place.name else self._list(request)
        if request.method == "POST":
            return self._evict(request) if request.sub == "eviction" else self._create(request)
        if request.method == "DELETE":
            return self._delete(request)
        if request.media.startswith("application/apply"):
            return self._apply(request)
        return self._patch(request)

    def _reviewed(self, request: Request) -> Answer:
        asked = request.body["spec"]["resourceAttributes"]
        allowed = not request.user or self.permits(
            request.user, asked["verb"], asked.get("group", ""), asked["resource"], asked["namespace"]
        )
        return 201, {**request.body, "status": {"allowed": allowed}}

    def _found(self, place: Place) -> Object:
        found = self._objects.get(place)
        if found is None:
            raise _Failure(404, "NotFound", f'{place.resource} "{place.name}" not found')
        return found

    def _get(self, request: Request) -> Answer:
        return 200, self._found(request.place)

    def _list(self, request: Request) -> Answer:
        wanted = dict(
            part.split("=", 1) for part in request.query.get("labelSelector", "").split(",") if part
        )
        items = [
            found
            for place, found in self.of(request.place.plural, request.place.namespace)
            if place.group == request.place.group
            and wanted.items() <= found["metadata"].get("labels", {}).items()
        ]
        return 200, {"kind": "List", "items": items}

    def _create(self, request: Request) -> Answer:
        content = copy.deepcopy(request.body)
        place = Place(
            request.place.group, request.place.plural, request.place.namespace, content["metadata"]["name"]
        )
        if place in self._objects:
            raise _Failure(409, "AlreadyExists", f'{place.resource} "{place.name}" already exists')
        self._require_namespace(place)
        made = self.make(place, content)
        self._owned[place] = {_manager(request): dict(_leaves(request.body))}
        return 201, self._settled(made)

    def _require_namespace(self, place: Place) -> None:
        if not place.namespace:
            return
        space = self._found(Place("", "namespaces", "", place.namespace))
        if space["metadata"].get("deletionTimestamp"):
            why = (
                f"unable to create new content in namespace {place.namespace} because it is being terminated"
            )
            raise _Failure(403, "Forbidden", f'{place.resource} "{place.name}" is forbidden: {why}')

    def _apply(self, request: Request) -> Answer:
        place, manager = request.place, _manager(request)
        wanted = dict(_leaves(request.body))
        if place not in self._objects:
            self._require_namespace(place)
            made = self.make(place, copy.deepcopy(request.body))
            self._owned[place] = {manager: wanted}
            return 201, self._settled(made)
        found, owned = self._objects[place], self._owned.setdefault(place, {})
        others = {path: name for name, paths in owned.items() if name != manager for path in paths if name}
        now = dict(_leaves(found))
        taken = [path for path, value in wanted.items() if path in others and now.get(path) != value]
        if taken:
            named = ", ".join(f".{'.'.join(path)}" for path in taken)
            why = f'Apply failed with 1 conflict: conflict with "{others[taken[0]]}": {named}'
            raise _Failure(409, "Conflict", why)
        for path in owned.get(manager, {}):
            if path not in wanted and path not in others:
                _put(found, path, None)
        for path, value in wanted.items():
            _put(found, path, copy.deepcopy(value))
        owned[manager] = wanted
        return 200, self._changed(found)

    def _patch(self, request: Request) -> Answer:
        found = self._found(request.place)
        before = dict(_leaves(found))
        if request.media.startswith("application/json-patch"):
            changed = copy.deepcopy(found)
            try:
                for operation in request.body:
                    _operate(changed, operation)
            except (LookupError, ValueError) as error:
                why = "the server rejected our request due to an error in our request"
                raise _Failure(422, "Invalid", why) from error
            found.clear()
            found.update(changed)
        else:
            _merge(found, request.body)
        self._note(request, found, before)
        return 200, self._changed(found)

    def _note(self, request: Request, found: Object, before: dict[tuple[str, ...], Any]) -> None:
        """Whoever changes a field by a patch owns it from then on, and nobody else does."""
        after = dict(_leaves(found))
        mine = {path: value for path, value in after.items() if before.get(path) != value}
        owned = self._owned.setdefault(request.place, {})
        for paths in owned.values():
            for path in mine:
                paths.pop(path, None)
        owned.setdefault(_manager(request), {}).update(mine)

    def _changed(self, found: Object) -> Object:
        self._revision += 1
        found["metadata"]["resourceVersion"] = str(self._revision)
        found["metadata"]["generation"] += 1
        return self._settled(found)

    def _settled(self, found: Object) -> Object:
        for control in self.controllers:
            control()
        return found

    def _delete(self, request: Request) -> Answer:
        found = self._found(request.place)
        wanted = ((request.body or {}).get("preconditions") or {}).get("uid")
        if wanted and wanted != found["metadata"]["uid"]:
            why = f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {found['metadata']['uid']}"
            raise _Failure(
                409, "Conflict", f'Operation cannot be fulfilled on {request.place.resource} "": {why}'
            )
        if request.place.plural == "namespaces":
            found["metadata"]["deletionTimestamp"] = self.clock.now().isoformat()
            for place in [p for p in self._objects if p.namespace == request.place.name]:
                self.drop(place)
            self.roles = {
                (user, space): r for (user, space), r in self.roles.items() if space != request.place.name
            }
            return 200, found
        self.drop(request.place)
        return 200, self._settled({"kind": "Status", "status": "Success"})

    def _evict(self, request: Request) -> Answer:
        self._found(request.place)
        self.drop(request.place)
        return 201, self._settled({"kind": "Status", "status": "Success"})


def _request(method: str, path: str, body: Any, media: str, user: str) -> Request:
    parts = urlsplit(path)
    found = PATH.fullmatch(parts.path)
    assert found is not None, path
    place = Place(found["group"] or "", found["plural"], found["namespace"] or "", found["name"] or "")
    return Request(method, place, found["sub"] or "", dict(parse_qsl(parts.query)), body, media, user)


def _forbidden(request: Request, verb: str) -> str:
    place = request.place
    return (
        f'{place.resource} "{place.name}" is forbidden: User "{request.user}" cannot {verb} resource '
        f'"{place.plural}" in API group "{place.group}" in the namespace "{place.namespace}"'
    )


def _manager(request: Request) -> str:
    return request.query.get("fieldManager", "")


def _leaves(content: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every value with the path to it; lists are one value, as most are in the kinds that the product applies."""
    if isinstance(content, dict) and content:
        for key, value in content.items():
            yield from _leaves(value, (*path, key))
    elif path not in (("kind",), ("apiVersion",), ("metadata", "name"), ("metadata", "namespace")):
        yield path, content


def _put(content: Object, path: tuple[str, ...], value: Any) -> None:
    *parents, last = path
    for key in parents:
        content = content.setdefault(key, {})
    if value is None:
        content.pop(last, None)
    else:
        content[last] = value


def _merge(content: Object, change: Mapping[str, Any]) -> None:
    """RFC 7386; a strategic merge of containers is by their names."""
    for key, value in change.items():
        if value is None:
            content.pop(key, None)
        elif isinstance(value, dict) and isinstance(content.get(key), dict):
            _merge(content[key], value)
        elif key == "containers":
            for each in value:
                _merge(next(found for found in content[key] if found["name"] == each["name"]), each)
        else:
            content[key] = copy.deepcopy(value)


def _operate(content: Any, operation: Mapping[str, Any]) -> None:
    """One operation of RFC 6902: test, add, replace or remove."""
    *parents, last = (part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:])
    for key in parents:
        content = content[int(key)] if isinstance(content, list) else content[key]
    where: Any = int(last) if isinstance(content, list) and last != "-" else last
    match operation["op"]:
        case "test":
            if content[where] != operation["value"]:
                raise ValueError("the test failed")
        case "remove":
            del content[where]
        case "add" if isinstance(content, list):
            content.insert(len(content) if where == "-" else where, copy.deepcopy(operation["value"]))
        case _:
            if operation["op"] == "replace":
                content[where]
            content[where] = copy.deepcopy(operation["value"])
