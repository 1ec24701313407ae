#!/usr/bin/env python3
"""Checks README.md, CHANGELOG.md and docs/: quoted code, links, and the names of tests and of Bazel targets.

Code in the docs is compiled code. A block that begins with ```cpp has to follow a line

    <!-- extract: examples/digits.cpp#step -->

and to equal the lines of that file between `// [step]` and `// [/step]`, less their common indentation. Blocks of other
languages (sh, text, ...) need no such line. The file has to belong to a target: its package's BUILD.bazel names it, or it is a
test, which tests/BUILD.bazel takes by folder. Links to files and headings have to lead somewhere, and a Bazel label has to
name a target.

A test that the docs call upon is named by a link in quotation marks, `["subject: what it does"](../tests/x_test.cpp)`. That file has
to have a TEST_CASE of that name, or of one that begins so, where the name ends with three dots.

Usage: docs_test.py [--write] (from the root of the repository; --write brings blocks up to date instead of failing)
"""

import functools
import pathlib
import re
import sys
import textwrap

COMPILED_LANGUAGES = {"cpp", "c++", "cxx", "c", "cuda", "hpp"}
FREE_LANGUAGES = {"sh", "text", "console", "bibtex", "starlark", "python", "mermaid"}
EXTRACT = re.compile(r"\s*<!-- extract: (\S+)#(\S+) -->\s*$")
FENCE = re.compile(r"\s*```(.*)$")
LINK = re.compile(r"\[[^\]]*\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)")
NAMED_TEST = re.compile(r"\[\"([^\]]+)\"\]\(([^)\s#]+)\)")
TEST_CASE = re.compile(r"\bTEST_CASE\(\s*((?:\"(?:[^\"\\]|\\.)*\"\s*)+)\)")
STRING = re.compile(r"\"((?:[^\"\\]|\\.)*)\"")
LABEL = re.compile(r"(?<![\w:/])//([A-Za-z_][\w/]*)?:([A-Za-z_]\w*)")

breaches = []


def report(path, line, message):
    breaches.append(f"{path}:{line}: {message}")


def extract(source, tag):
    """Returns the region of a file as a list of lines; raises ValueError if it has none."""
    lines = source.read_text().splitlines()
    opening, closing = f"// [{tag}]", f"// [/{tag}]"
    stripped = [line.strip() for line in lines]
    if stripped.count(opening) != 1 or stripped.count(closing) != 1:
        raise ValueError(f"has not exactly one line `{opening}` and one `{closing}`")
    inside = lines[stripped.index(opening) + 1 : stripped.index(closing)]
    # The marks of other regions that lie inside are not part of the text.
    inside = [line for line in inside if not re.fullmatch(r"\s*// \[/?[\w-]+\]\s*", line)]
    return textwrap.dedent("\n".join(inside)).splitlines()


def belongs_to_a_target(source):
    """Tells whether some BUILD.bazel above this file takes it into a target."""
    if source.parts[0] == "tests":
        return source.name.endswith("_test.cpp") or source.name in pathlib.Path("tests/BUILD.bazel").read_text()
    if source.parts[0] == "include":
        return True
    for folder in source.parents:
        build = folder / "BUILD.bazel"
        if build.is_file():
            text = build.read_text()
            # By its path there, or by the glob "*.cpp" that benchmarks has.
            return f'"{source.relative_to(folder)}"' in text or f'"*{source.suffix}"' in text
    return False


def expected_block(path, number, name, tag):
    """Returns the lines that a block should hold, or None after reporting why there are none."""
    source = pathlib.PurePosixPath(name)
    if not pathlib.Path(source).is_file():
        report(path, number, f"quotes {name}, which does not exist")
        return None
    if not belongs_to_a_target(pathlib.Path(source)):
        report(path, number, f"quotes {name}, which no Bazel target compiles")
        return None
    try:
        return extract(pathlib.Path(source), tag)
    except ValueError as error:
        report(path, number, f"quotes {name}, which {error}")
        return None


def blocks(path, lines):
    """Yields (index of the opening fence, index of the closing one, language)."""
    opening = None
    for index, line in enumerate(lines):
        fence = FENCE.match(line)
        if not fence:
            continue
        if opening is None:
            opening = (index, (fence.group(1).split() or [""])[0])
        else:
            yield opening[0], index, opening[1]
            opening = None
    if opening is not None:
        report(path, opening[0] + 1, "a block of code has no end")


def check_blocks(path, lines):
    """Checks the fenced blocks of one file and returns its lines with each quoted block brought up to date."""
    updated = list(lines)
    for opening, closing, language in reversed(list(blocks(path, lines))):
        before = opening - 1
        while before >= 0 and not lines[before].strip():
            before -= 1
        marker = EXTRACT.match(lines[before]) if before >= 0 else None
        if marker:
            expected = expected_block(path, opening + 1, *marker.groups())
            if expected is not None and lines[opening + 1 : closing] != expected:
                report(path, opening + 1, "differs from {}#{}; run tests/docs_test.py --write".format(*marker.groups()))
                updated[opening + 1 : closing] = expected
        elif language in COMPILED_LANGUAGES:
            report(path, opening + 1, f"a {language} block without `<!-- extract: FILE#TAG -->` before it")
        elif language not in FREE_LANGUAGES:
            report(path, opening + 1, f"a block of code in language '{language}'; known are {sorted(FREE_LANGUAGES)}")
    return updated


def anchors(path):
    """The names by which a Markdown file's headings can be linked to, as GitHub makes them."""
    headings = re.findall(r"^#+\s+(.+?)\s*#*$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


def check_links(path, number, line):
    for target in LINK.findall(line):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        destination = path.parent / name if name else path
        if not destination.exists():
            report(path, number, f"links to {target}, which does not exist")
        elif anchor and destination.suffix == ".md" and anchor not in anchors(destination):
            report(path, number, f"links to {target}, and there is no such heading")


@functools.lru_cache(maxsize=None)
def names_of_tests(source):
    """The names of a file's test cases."""
    literals = [STRING.findall(names) for names in TEST_CASE.findall(source.read_text())]
    return [re.sub(r"\\(.)", r"\1", "".join(parts)) for parts in literals]


def check_named_tests(path, number, line):
    for name, file in NAMED_TEST.findall(line):
        source = path.parent / file
        if not source.is_file():
            continue  # check_links says so
        names = names_of_tests(source)
        found = [n for n in names if n.startswith(name[:-3])] if name.endswith("...") else [n for n in names if n == name]
        if len(found) != 1:
            report(path, number, f"names the test \"{name}\", of which {file} has {len(found)}")


def check_labels(path, number, line):
    for package, name in LABEL.findall(line):
        build = pathlib.Path(package) / "BUILD.bazel"
        known = build.is_file() and f'"{name}"' in build.read_text()
        # These two folders make targets out of file names.
        if package == "benchmarks":
            known = known or (build.parent / f"{name}.cpp").is_file()
        if package == "":
            known = known or f'"name": "{name}"' in pathlib.Path("floors.bzl").read_text()
        if not known:
            report(path, number, f"names the target //{package}:{name}, which does not exist")


def check_file(path, write):
    text = path.read_text()
    lines = text.splitlines()
    updated = check_blocks(path, lines)
    in_block = {i for opening, closing, _ in blocks(path, lines) for i in range(opening, closing + 1)}
    for index, line in enumerate(lines):
        if index not in in_block:
            check_links(path, index + 1, re.sub(r"`[^`]*`", "", line))
            check_named_tests(path, index + 1, line)
        check_labels(path, index + 1, line)
    if write and updated != lines:
        path.write_text("\n".join(updated) + "\n")
        print(f"{path}: brought up to date")


def main():
    paths = sorted(p for p in pathlib.Path(".").glob("*.md")) + sorted(pathlib.Path("docs").rglob("*.md"))
    for path in paths:
        check_file(path, write="--write" in sys.argv[1:])
    print("\n".join(breaches + [f"docs: {len(paths)} files, {len(breaches)} breaches"]))
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
