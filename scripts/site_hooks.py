"""MkDocs hooks that build a site from pages that are written for a code host.

Pages outside ``docs`` (``extra.pages_outside_docs`` in mkdocs.yml) become pages of the site; links
to them are changed. Links to source files become plain text, since the site has no source files.
Words after the language of a code block are for the tests that run it, not for a highlighter.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)#\s]+)(#[^)\s]*)?\)")
INFO = re.compile(r"^( *```[\w-]+)(?: [^\n`]*?file=(?P<file>[^\s`]+))?(?: [^\n`]*)?$", re.MULTILINE)


def on_config(config: Any) -> Any:
    """Give headings the anchors that code hosts give them."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = _anchor
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages outside ``docs``."""
    for path, page in config.extra["pages_outside_docs"].items():
        files.append(File.generated(config, page, content=(ROOT / path).read_text()))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Change links that leave ``docs``, and the attributes of code blocks."""
    added = config.extra["pages_outside_docs"]
    origins = {page: path for path, page in added.items()}
    uri = page.file.src_uri
    origin = origins.get(uri, f"docs/{uri}")

    def changed(found: re.Match[str]) -> str:
        mark, label, target, anchor = found[1], found[2], found[3], found[4] or ""
        if re.match(r"[a-z]+:", target):
            return found[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), target))
        inside = added.get(path) or (path.removeprefix("docs/") if path[:5] == "docs/" else None)
        if inside is None:
            return label
        link = posixpath.relpath(inside, posixpath.dirname(uri) or ".")
        return f"{mark}[{label}]({link}{anchor})"

    pieces = []
    at = 0
    for fence in FENCE.finditer(markdown):
        pieces += [LINK.sub(changed, markdown[at : fence.start()]), INFO.sub(_info, fence[0])]
        at = fence.end()
    pieces.append(LINK.sub(changed, markdown[at:]))
    return "".join(pieces)


def _anchor(heading: str, separator: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", separator)


def _info(found: re.Match[str]) -> str:
    name = found["file"]
    return f'{found[1]} title="{name}"' if name else found[1]
