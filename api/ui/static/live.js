// The live part of a study is asked for again at each event of its journal; while there is no stream, every two seconds.
(() => {
  "use strict";
  const POLL_MS = 2000;
  const ANYWAY = 8; // of so many polls one is made although the stream is open
  const AGAIN_MS = 30000; // after a refusal, such as too many streams
  let stream = null;
  let asking = false;
  let more = false;
  let polls = 0;

  const part = () => document.getElementById("live");
  const events = () => part()?.dataset.events;

  function ask() {
    if (asking) {
      more = true;
      return;
    }
    if (!events()) return;
    asking = true;
    part().dispatchEvent(new CustomEvent("news"));
  }

  function open() {
    if (stream || document.hidden || !events()) return;
    stream = new EventSource(events());
    stream.addEventListener("progress", ask);
    stream.addEventListener("ended", () => {
      close();
      ask(); // the answer loads the page again
    });
    stream.addEventListener("refused", () => {
      close();
      location.reload(); // to sign in again
    });
    stream.addEventListener("error", () => {
      if (stream?.readyState !== EventSource.CLOSED) return; // the browser connects again by itself
      close();
      setTimeout(open, AGAIN_MS);
    });
  }

  function close() {
    stream?.close();
    stream = null;
  }

  document.addEventListener("htmx:finally:request", () => {
    asking = false;
    if (!more) return;
    more = false;
    ask();
  });
  // A browser keeps few connections to a host: a page that nobody looks at needs none.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      close();
    } else {
      ask();
      open();
    }
  });
  setInterval(() => {
    polls += 1;
    if (document.hidden || (stream?.readyState === EventSource.OPEN && polls % ANYWAY)) return;
    asking = false; // whatever became of a request that never ended
    ask();
  }, POLL_MS);
  open();
})();
