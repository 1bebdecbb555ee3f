"""What every page must satisfy in a browser, at each width and colour scheme: `assert not faults(browser, page, …)`.

Not checked: the text of pictures that are made of pixels, and what a box that scrolls does not show yet. The background
of text in a figure is taken from the pixels behind it, as it may stand on a filled shape. `<details>` are opened.
"""

import io

import numpy as np
from PIL import Image

VIEWS = [(1280, "light"), (390, "dark")]
"""Widths in pixels, of a desk and a phone, and colour schemes: no colour of a page depends on the width, and no size on
the scheme."""

MIN_CONTRAST = 4.5
"""Of text and its background, WCAG 2.2's level AA."""

FIND_TEXT = """(() => {
  const texts = [], rgb = color => color.match(/[\\d.]+/g).map(Number);
  const clipped = (node, x, y) => {  // outside of a box that scrolls
    for (let box = node.parentElement; box; box = box.parentElement)
      if (box != document.body && !(box instanceof SVGElement) && getComputedStyle(box).overflowX != 'visible') {
        const {left, right, top, bottom} = box.getBoundingClientRect();
        if (x < left || x > right || y < top || y > bottom) return true;
      }
    return false;
  };
  const background = node => {
    for (let box = node; box; box = box.parentElement) {
      const color = rgb(getComputedStyle(box).backgroundColor);
      if (color.length < 4 || color[3] == 1) return color.slice(0, 3);
    }
  };
  const add = (node, text, corners, color, back, shrink) => {
    const mid = [0, 1].map(k => corners.reduce((sum, c) => sum + c[k], 0) / 4);
    if (!text.trim() || clipped(node, ...mid)) return;
    // a line's box is higher than its letters
    const [a, b, c, d] = corners, between = (p, q, t) => [0, 1].map(k => p[k] + t * (q[k] - p[k]));
    const quad = [between(a, d, shrink), between(b, c, shrink), between(b, c, 1 - shrink), between(a, d, 1 - shrink)];
    texts.push({text: text.trim().slice(0, 60), quad, color, back});
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, parent = node.parentElement, style = getComputedStyle(parent);
    if (!node.data.trim() || !parent.checkVisibility({visibilityProperty: true, contentVisibilityAuto: true})) continue;
    if (parent.closest('svg')) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const {left, right, top, bottom} of range.getClientRects())
      if (right > left) add(parent, node.data, [[left, top], [right, top], [right, bottom], [left, bottom]],
                            rgb(style.color), background(parent), 0.15);
  }
  for (const node of document.querySelectorAll('svg text')) {
    if (!node.checkVisibility({visibilityProperty: true, contentVisibilityAuto: true})) continue;
    const {x, y, width, height} = node.getBBox(), matrix = node.getScreenCTM();
    const corners = [[x, y], [x + width, y], [x + width, y + height], [x, y + height]].map(([x, y]) => {
      const p = new DOMPoint(x, y).matrixTransform(matrix);
      return [p.x, p.y];
    });
    add(node, node.textContent, corners, rgb(getComputedStyle(node).fill), null, 0.2);
  }
  return texts;
})()"""
"""Visible text: what it says, its four corners, its colour, and the background; null in figures, where pixels tell."""

FIND_EMPTY = """(() => {
  const found = [], level = node => node && /^H[1-6]$/.test(node.tagName) ? +node.tagName[1] : 0;
  for (const node of document.querySelectorAll('h2, h3')) {
    const next = node.nextElementSibling;
    if (!next || level(next) && level(next) <= level(node)) found.push(`nothing below "${node.textContent}"`);
  }
  for (const node of document.querySelectorAll('p, figure, figcaption, h1, h2, h3, li, td:only-child, pre, div'))
    if (!node.textContent.trim() && !node.querySelector('svg, img, audio'))
      found.push(`empty ${node.outerHTML.slice(0, 80)}`);
  for (const node of document.querySelectorAll('table'))
    if (!node.querySelector('td')) found.push('a table without cells');
  const ids = [...document.querySelectorAll('[id]')].map(node => node.id);
  for (const id of new Set(ids)) if (ids.indexOf(id) != ids.lastIndexOf(id)) found.push(`id ${id} twice`);
  return found;
})()"""
"""Headings without content, elements without text or picture, ids that come twice."""


def faults(browser, path, width, scheme):
    """What is wrong with a page at that width and colour scheme, in words; the page is loaded once."""
    browser.errors.clear()
    browser.requests.clear()
    browser.show(path, width, scheme)
    browser.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    address = path.absolute().as_uri()
    found = [f"logged: {error}" for error in browser.errors]
    found += [
        f"asked for {url[:80]}"
        for url in browser.requests
        if url != address and not url.startswith("data:")
    ]
    content, window = browser.evaluate(
        "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    assert window == width
    if content > width:
        found.append(f"the page is {content} pixels wide")
    found += browser.evaluate(FIND_EMPTY)
    texts = browser.evaluate(FIND_TEXT)
    return found + overlaps(texts) + pale(texts, lambda: _pixels_behind_figures(browser))


def overlaps(texts):
    """Pairs of texts whose boxes overlap."""
    boxes = [(text["text"], np.array(text["quad"])) for text in texts]
    boxes.sort(key=lambda box: box[1][:, 1].min())
    found = []
    for i, (text, quad) in enumerate(boxes):
        for other, other_quad in boxes[i + 1 :]:
            if other_quad[:, 1].min() >= quad[:, 1].max():
                break
            if _overlap(quad, other_quad):
                found.append(f"{text!r} overlaps {other!r}")
    return found


def _overlap(first, second, tolerance=1.0):
    """Whether two rectangles, each in any direction, overlap by more than so many pixels (separating axes)."""
    for quad in (first, second):
        for edge in (quad[1] - quad[0], quad[3] - quad[0]):
            length = np.hypot(*edge)
            if length == 0:
                return False
            one, two = first @ edge / length, second @ edge / length
            if one.max() - tolerance <= two.min() or two.max() - tolerance <= one.min():
                return False
    return True


def pale(texts, pixels_behind_figures):
    """Texts with too little contrast. In figures the background is the median of the pixels behind the text."""
    found, pixels = set(), None
    for text in texts:
        back = text["back"]
        if back is None:
            pixels = pixels_behind_figures() if pixels is None else pixels
            (left, top), (right, bottom) = (
                np.round(f(np.array(text["quad"]), axis=0)) for f in (np.min, np.max)
            )
            behind = pixels[
                int(max(top, 0)) : int(bottom) + 1, int(max(left, 0)) : int(right) + 1
            ].reshape(-1, 3)
            if not len(behind):
                continue
            back = np.median(behind, axis=0)
        ratio = contrast(text["color"][:3], back)
        if ratio < MIN_CONTRAST:
            found.add(f"{text['text']!r} has a contrast of {ratio:.1f}")
    return sorted(found)


def contrast(first, second):
    """The contrast ratio of two colours (three numbers up to 255), as WCAG 2.2 defines it."""
    bright, dark = sorted((_luminance(color) for color in (first, second)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def _luminance(color):
    shares = np.asarray(color, float) / 255
    linear = np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def _pixels_behind_figures(browser):
    """The page as pixels [height width 3], without the text of its figures."""
    hidden = "document.createElement('style'), {textContent: 'svg text { visibility: hidden }'}"
    browser.evaluate(f"document.head.append(Object.assign({hidden}))")
    return np.asarray(Image.open(io.BytesIO(browser.screenshot())).convert("RGB"))
