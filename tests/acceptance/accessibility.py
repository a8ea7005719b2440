"""What keeps a page from being read by everybody, computed in the browser: after WCAG 2.1, level AA.

Contrast of every text against what is behind it (success criteria 1.4.3 and 1.4.11), names of what can be used
(4.1.2, 1.3.1), headings in order, a language, unique ids, and no scrolling sideways at 320 pixels and more (1.4.10).
"""

from __future__ import annotations

from playwright.sync_api import Page

SCRIPT = r"""() => {
  const faults = [];
  const short = e => `<${e.tagName.toLowerCase()}${e.id ? '#' + e.id : ''} class="${e.getAttribute('class') || ''}"> ` +
    (e.textContent || '').trim().slice(0, 40);
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgba = colour => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, under) => [0, 1, 2].map(i => top[i] * top[3] + under[i] * (1 - top[3])).concat([1]);
  const behind = element => {
    const layers = [];
    for (let e = element; e; e = e.parentElement) {
      const colour = rgba(getComputedStyle(e).backgroundColor);
      if (colour[3] > 0) layers.push(colour);
      if (colour[3] === 1) break;
    }
    let base = matchMedia('(prefers-color-scheme: dark)').matches ? [18, 18, 18, 1] : [255, 255, 255, 1];
    for (const layer of layers.reverse()) base = over(layer, base);
    return base;
  };
  const luminance = c => {
    const [r, g, b] = c.slice(0, 3).map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => {
    const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p);
    return (x + 0.05) / (y + 0.05);
  };
  const visible = e => e.checkVisibility({checkVisibilityCSS: true}) && e.getClientRects().length > 0;
  const seen = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const e = node.parentElement;
    if (!node.textContent.trim() || !e || seen.has(e) || !visible(e)) continue;
    if (['SCRIPT', 'STYLE', 'TITLE', 'DESC', 'OPTION'].includes(e.tagName.toUpperCase())) continue;
    seen.add(e);
    const style = getComputedStyle(e);
    const svg = e instanceof SVGElement;
    const back = behind(svg ? e.closest('svg').parentElement : e);
    const ink = over(rgba(svg ? style.fill : style.color), back);
    const size = parseFloat(style.fontSize), bold = parseInt(style.fontWeight) >= 700;
    const needed = size >= 24 || (size >= 18.66 && bold) ? 3 : 4.5;
    const found = contrast(ink, back);
    if (found < needed) faults.push(`contrast ${found.toFixed(2)} of ${needed}: ${short(e)}`);
  }
  for (const e of document.querySelectorAll('.mark, .ring, .ceiling, .ramp, .incumbent, .promoted, .version')) {
    if (!visible(e)) continue;
    const style = getComputedStyle(e);
    const ink = style.stroke !== 'none' ? style.stroke : style.fill;
    const back = behind(e.closest('svg').parentElement);
    const found = contrast(over(rgba(ink), back), back);
    if (found < 3) faults.push(`contrast ${found.toFixed(2)} of 3: ${short(e)}`);
  }
  for (const e of document.querySelectorAll('input, select, textarea')) {
    if (e.type === 'hidden') continue;
    if (!(e.labels && e.labels.length) && !e.getAttribute('aria-label')) faults.push(`no label: ${short(e)}`);
    const edge = getComputedStyle(e);
    if (visible(e) && e.type !== 'checkbox' && contrast(over(rgba(edge.borderTopColor), behind(e)), behind(e)) < 3)
      faults.push(`contrast of the edge: ${short(e)}`);
    for (const id of (e.getAttribute('aria-describedby') || '').split(' ').filter(Boolean))
      if (!document.getElementById(id)) faults.push(`described by nothing: ${id}`);
  }
  for (const e of document.querySelectorAll('a, button, summary, [role=img], [role=group], table'))  {
    const caption = e.querySelector('caption, title');
    const name = e.getAttribute('aria-label') || (e.getAttribute('aria-labelledby') ? 'given' : '') ||
      (e.tagName === 'TABLE' ? (caption && caption.textContent) : e.textContent) || '';
    if (!name.trim()) faults.push(`no name: ${short(e)}`);
  }
  for (const e of document.querySelectorAll('[aria-labelledby]'))
    for (const id of e.getAttribute('aria-labelledby').split(' '))
      if (!document.getElementById(id)) faults.push(`named by nothing: ${id}`);
  if (!document.documentElement.lang) faults.push('no language');
  const levels = [...document.querySelectorAll('h1, h2, h3, h4')].filter(visible).map(e => +e.tagName[1]);
  if (levels.filter(level => level === 1).length !== 1) faults.push('not one first heading');
  levels.forEach((level, at) => {
    if (at && level > levels[at - 1] + 1) faults.push(`heading ${level} after ${levels[at - 1]}`);
  });
  const ids = [...document.querySelectorAll('[id]')].map(e => e.id);
  for (const id of new Set(ids.filter((id, at) => ids.indexOf(id) !== at))) faults.push(`id twice: ${id}`);
  const wide = document.scrollingElement.scrollWidth;
  if (wide > innerWidth) {
    const widest = [...document.querySelectorAll('body *')].filter(
      e => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest('.scroll')).pop();
    faults.push(`scrolls sideways: ${wide} > ${innerWidth}: ${widest ? short(widest) : ''}`);
  }
  return faults;
}"""


def faults_of(page: Page) -> list[str]:
    """Return what is wrong with a page as it is shown now."""
    found: list[str] = page.evaluate(SCRIPT)
    return found
