"""The elements a report page is made of; text is escaped unless it already is an element."""

from __future__ import annotations

import html
from collections.abc import Sequence


class Element(str):
    """HTML that is finished: everything from outside in it was escaped."""

    __slots__ = ()


def element(tag: str, *children: object, **attributes: str) -> Element:
    """An element; children that are no `Element` are escaped. `class_` becomes `class`.

    >>> element("p", "a < b", element("b", "!"), class_="note")
    '<p class="note">a &lt; b<b>!</b></p>'
    """
    inner = "".join(child if isinstance(child, Element) else html.escape(str(child)) for child in children)
    names = "".join(f' {name.rstrip("_")}="{html.escape(value)}"' for name, value in attributes.items())
    return Element(f"<{tag}{names}>{inner}</{tag}>")


def join(*parts: Element) -> Element:
    """Elements one after the other."""
    return Element("".join(parts))


def section(title: str, *children: Element) -> Element:
    """A titled part of the page."""
    return element("section", element("h2", title), *children)


def table(headers: Sequence[object], rows: Sequence[Sequence[object]], numeric: Sequence[int] = ()) -> Element:
    """A table that scrolls by itself in a narrow window.

    Args:
        numeric: numbers of the columns that are aligned to the right.
    """

    def cells(tag: str, row: Sequence[object]) -> Element:
        return element(
            "tr",
            *(element(tag, cell, class_="num" if column in numeric else "text") for column, cell in enumerate(row)),
        )

    head = element("thead", cells("th", headers))
    body = element("tbody", *(cells("td", row) for row in rows))
    return element("div", element("table", head, body), class_="scroll", tabindex="0")


def with_interval(value: str, lower: str, upper: str) -> Element:
    """A number with its interval below it."""
    return join(element("span", value, class_="value"), element("span", f"{lower} – {upper}", class_="interval"))


def duration_text(seconds: float) -> str:
    """A duration for people.

    >>> duration_text(7.26), duration_text(512.4), duration_text(7325)
    ('7.3 s', '8 min 32 s', '2 h 2 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def bytes_text(size_bytes: float) -> str:
    """A size for people.

    >>> bytes_text(900), bytes_text(50_331_648)
    ('900 B', '48.0 MiB')
    """
    if size_bytes < 1024:
        return f"{size_bytes:.0f} B"
    return f"{size_bytes / 1024:.1f} KiB" if size_bytes < 1 << 20 else f"{size_bytes / (1 << 20):.1f} MiB"


def page(title: str, *children: Element) -> str:
    """The whole document; it refers to nothing outside itself."""
    # The policy makes "no external requests" something the browser enforces.
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    head = (
        f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style>"
    )
    body = element("body", element("main", *children))
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>{body}</html>\n'


_STYLE = """
:root{--ink:#1a1d21;--soft:#565d66;--line:#dfe3e8;--tint:#f5f7f9;--accent:#0b5c94;--good:#1b6e3c;--bad:#a13a0a}
*{box-sizing:border-box}
body{margin:0;background:#fff;color:var(--ink);font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",
sans-serif}
main{max-width:70rem;margin:0 auto;padding:2.5rem 1.25rem 4rem}
.kicker{margin:0;color:var(--soft);font-size:.95rem}
h1{margin:.15rem 0 .6rem;font-size:clamp(1.5rem,4.5vw,2.1rem);line-height:1.2;letter-spacing:-.01em;
overflow-wrap:anywhere}
h2{margin:2.75rem 0 .75rem;font-size:1.2rem;line-height:1.3}
h3{margin:1.25rem 0 .5rem;font-size:1rem}
p,ul,figure,dl{margin:0 0 .9rem}
p,li,dd{overflow-wrap:anywhere}td{overflow-wrap:break-word}
.lead{font-size:1.08rem;max-width:46rem}
.note,figcaption{color:var(--soft);font-size:.9rem;max-width:46rem}
.pill{display:inline-block;padding:.12rem .65rem;border-radius:1rem;font-size:.85rem;font-weight:600;color:#fff}
.pill.good{background:var(--good)}.pill.bad{background:var(--bad)}
td .good,td .bad{font-weight:600}td .good{color:var(--good)}td .bad{color:var(--bad)}
.facts{display:grid;grid-template-columns:repeat(3,1fr);gap:1px;margin:1.5rem 0;
background:var(--line);border:1px solid var(--line);border-radius:.4rem;overflow:hidden}
.facts div{background:#fff;padding:.6rem .85rem}
.facts dt{color:var(--soft);font-size:.82rem}.facts dd{margin:0;font-weight:600}
.scroll{overflow-x:auto;margin:0 0 .9rem}
table{border-collapse:collapse;width:100%;font-size:.92rem;font-variant-numeric:tabular-nums}
th{color:var(--soft);font-weight:600;font-size:.82rem;line-height:1.3;vertical-align:bottom;border-bottom:2px solid
var(--line)}
th,td{padding:.45rem .7rem;text-align:left}td{vertical-align:top;border-bottom:1px solid var(--line)}
th:first-child,td:first-child{padding-left:0}th:last-child,td:last-child{padding-right:0}
.num{text-align:right;white-space:nowrap}
.value{display:block;font-weight:600}.interval{display:block;color:var(--soft);font-size:.82rem}
.sub{display:block;color:var(--soft);font-size:.82rem;min-width:10rem}
img{display:block;width:100%;height:auto;max-width:50rem}
code,pre{font-family:ui-monospace,SFMono-Regular,Menlo,"DejaVu Sans Mono",monospace;font-size:.86em}
pre{margin:0 0 .9rem;padding:.8rem 1rem;background:var(--tint);border-radius:.4rem;overflow-x:auto;line-height:1.5}
details{margin:0 0 .9rem}summary{cursor:pointer;color:var(--accent);font-weight:600}
details[open] summary{margin-bottom:.6rem}
.columns{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,20rem),1fr));gap:0 2.5rem}
.bar{display:block;height:.7rem;min-width:2px;background:var(--accent);border-radius:.15rem}
td.text:has(.bar){width:50%;vertical-align:middle}
ul{padding-left:1.2rem}li{margin:.25rem 0;max-width:46rem}
@media(max-width:36rem){.facts{grid-template-columns:repeat(2,1fr)}main{padding-top:1.5rem}}
@media print{main{max-width:none;padding:0}section{break-inside:avoid}}
"""
