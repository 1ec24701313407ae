#!/usr/bin/env python3
"""Compiles programs that must not compile, and checks what the compiler says.

Usage: compile_fail.py FOLDER...
Each .cpp file there holds one or more lines `// EXPECT: REGEX`. The compiler ($CXX, or g++) has to reject the file, and each
REGEX has to match in what it prints; white space in that counts as one space, so that a message may be broken over lines, and quotation marks are ASCII.
"""

import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

COMPILE = ["-std=c++20", "-fsyntax-only", "-Iinclude", "-Wall", "-Wextra", "-fdiagnostics-color=never"]
TIMEOUT_SECONDS = 120
OUTPUT_SHOWN_MAX = 4000


def check(compiler, source):
    """Returns what is wrong with one file, or None."""
    expectations = re.findall(r"^\s*// EXPECT: (.+?)\s*$", source.read_text(), re.MULTILINE)
    if not expectations:
        return f"{source}: has no line `// EXPECT: REGEX`"
    compiled = subprocess.run(
        [compiler, *COMPILE, str(source)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "LC_ALL": "C"},
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    said = f"{compiler} said:\n{compiled.stdout[:OUTPUT_SHOWN_MAX]}"
    if compiled.returncode == 0:
        return f"{source}: compiles, and must not. {said}"
    output = " ".join(compiled.stdout.split())
    missing = [e for e in expectations if not re.search(e, output)]
    if missing:
        return f"{source}: is rejected without the words\n  " + "\n  ".join(missing) + f"\n{said}"
    return None


def main():
    compiler = os.environ.get("CXX", "g++")
    sources = sorted(s for folder in sys.argv[1:] for s in pathlib.Path(folder).glob("**/*.cpp"))
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        wrong = [w for w in pool.map(lambda s: check(compiler, s), sources) if w]
    for description in wrong:
        print(description, end="\n\n")
    print(f"{compiler}: {len(sources) - len(wrong)} of {len(sources)} files are rejected as they should be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
