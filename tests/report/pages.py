"""A page as its tags, its addresses and its words, for tests."""

from html.parser import HTMLParser

VOID = {"meta", "link", "br", "img", "wbr"}


class Page(HTMLParser):
    """A page. open: tags that do not close. addresses: all that it refers to. labels: what figures say in words."""

    def __init__(self, text):
        super().__init__()
        self.source, self.text = text, ""
        self.open, self.tags, self.addresses, self.headings, self.cells, self.labels = (
            [],
            [],
            [],
            [],
            [],
            [],
        )
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.addresses += [
            value
            for name, value in attrs
            if name in ("href", "src", "xlink:href", "srcset", "action")
        ]
        if ("role", "img") in attrs and tag != "svg":  # whose words the page may have replaced
            self.labels.append(dict(attrs)["aria-label"])
        if tag == "td":
            self.cells.append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" in self.open:
            return
        self.text += data
        if self.open and self.open[-1] in ("h1", "h2", "h3"):
            self.headings.append(data)
        if "td" in self.open:
            self.cells[-1] += data

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()
