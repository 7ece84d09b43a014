"""Adapts the pages of docs/, which are written for GitHub, to MkDocs."""

import os
import re

DOCS = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", "docs"))
ROOT = os.path.dirname(DOCS)
SECTIONS = ["tutorials", "how-to", "reference", "explanation", "internals"]
FENCE = re.compile(r"^(\s*```)([\w-]+)[^\n`]*$", re.MULTILINE)
LINK = re.compile(r"(\]\()([^)\s#:]+)((?:#[^)\s]*)?\))")


def on_config(config):
    """Lists the pages by folder, in the order of their titles."""
    nav = [{"Home": "README.md"}]
    for section in SECTIONS:
        pages = [f"{section}/{name}" for name in os.listdir(os.path.join(DOCS, section)) if name.endswith(".md")]
        nav.append({section.replace("-", " ").capitalize(): sorted(pages, key=title)})
    config["nav"] = nav
    return config


def title(path):
    with open(os.path.join(DOCS, path), encoding="utf-8") as page:
        return page.readline().lower()


def on_page_markdown(markdown, page, config, files):
    """Links files outside of docs/ to the repository, and removes the attributes of code blocks, which only tests read."""
    folder = os.path.dirname(os.path.join(DOCS, page.file.src_uri))

    def link(match):
        target = os.path.normpath(os.path.join(folder, match[2]))
        if target.startswith(DOCS + os.sep):
            return match[0]
        if not os.path.exists(target):
            return match[0]  # MkDocs reports the missing file
        kind = "tree" if os.path.isdir(target) else "blob"
        return f"{match[1]}{config['repo_url']}/{kind}/main/{os.path.relpath(target, ROOT)}{match[3]}"

    return FENCE.sub(r"\1\2", LINK.sub(link, markdown))
