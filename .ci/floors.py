#!/usr/bin/env python3
"""Checks the house rules that a compiler does not: floors, tests beside headers, and the form of a header.

Usage: .ci/floors.py [REPOSITORY]
Prints each breach as FILE:LINE: what is wrong; what to do. Exits with 1 if there are any.
"""

import ast
import pathlib
import re
import sys

LINES_MAX = 400

# Headers without a test file of their own, and why.
UNTESTED = {
    "device/basic_cuda_kernels.cuh": "compiled by nvcc: tests/gpu/kernels_test.cu; by g++: tests/gpu/kernels_source_test.cpp",
    "device/cuda_device_code.cuh": "compiled by nvcc: tests/gpu/kernels_test.cu; by g++: tests/gpu/kernels_source_test.cpp",
    "device/cuda_kernels.cuh": "compiled by nvcc: tests/gpu/kernels_test.cu",
}

INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^>"]+)[>"]')
# What only floor 5 may include.
SDK_HEADER = re.compile(
    r"(boost/|asio|mpi\.h|nccl|cuda|cub/|thrust/|cooperative_groups|hip/|openssl/|infiniband/|torch/|ATen/)"
)
SDK_FLOOR = 5
COMPILER_CONDITION = re.compile(r"\s*#\s*(if|ifdef|ifndef|elif)\b.*(__GNUC__|__clang__|_MSC_VER|__SANITIZE_|__has_feature)")
COMPILER_CONDITIONS_IN = "config.hpp"


def load_floors(repository):
    """Reads FLOORS from floors.bzl, a list of dicts without any code."""
    for statement in ast.parse((repository / "floors.bzl").read_text()).body:
        if isinstance(statement, ast.Assign) and statement.targets[0].id == "FLOORS":
            return ast.literal_eval(statement.value)
    raise SystemExit("floors.bzl: no FLOORS")


def matches(header, patterns):
    """As Bazel's glob does: `*` does not cross a slash."""
    return any(re.fullmatch(re.escape(p).replace(r"\*", "[^/]*"), header) for p in patterns)


class Checker:
    def __init__(self, repository):
        self.repository = repository
        self.include_root = repository / "include" / "gradweave"
        self.groups = load_floors(repository)
        self.breaches = []

    def report(self, path, line, message):
        self.breaches.append(f"{path.relative_to(self.repository)}:{line}: {message}")

    def groups_of(self, header):
        return [
            g for g in self.groups if matches(header, g["headers"]) and not matches(header, g.get("except", []))
        ]

    def may_include(self, group, other):
        return (
            other["name"] == group["name"]
            or other["name"] in group.get("also", [])
            or other["floor"] < group.get("floor_below", group["floor"])
        )

    def check_header(self, path):
        header = path.relative_to(self.include_root).as_posix()
        lines = path.read_text().splitlines()
        groups = self.groups_of(header)
        if len(groups) != 1:
            names = " and ".join(g["name"] for g in groups) or "no entry"
            self.report(path, 1, f"belongs to {names} of floors.bzl; add it to exactly one")
        group = groups[0] if groups else None

        if not lines or not lines[0].startswith("/// @file"):
            self.report(path, 1, "does not begin with `/// @file`; say there what the header is for")
        if "#pragma once" not in lines:
            self.report(path, 1, "has no `#pragma once`; put it below the `/// @file` comment")
        if len(lines) > LINES_MAX:
            self.report(path, LINES_MAX + 1, f"has {len(lines)} lines, over {LINES_MAX}; split it")

        for number, line in enumerate(lines, start=1):
            if header != COMPILER_CONDITIONS_IN and COMPILER_CONDITION.match(line):
                self.report(path, number, f"asks for the compiler; only {COMPILER_CONDITIONS_IN} does that")
            include = INCLUDE.match(line)
            if include:
                self.check_include(path, number, group, include.group(1), include.group(2))

    def check_include(self, path, number, group, quote, included):
        if quote == '"':
            self.report(path, number, f'includes "{included}"; write <gradweave/...>')
        elif not included.startswith("gradweave/"):
            if SDK_HEADER.match(included) and (group is None or group["floor"] != SDK_FLOOR):
                self.report(path, number, f"includes <{included}>, an SDK's; move that to a header on floor {SDK_FLOOR}")
        elif not (self.include_root.parent / included).is_file():
            self.report(path, number, f"includes <{included}>, which does not exist")
        elif group is not None:
            for other in self.groups_of(included[len("gradweave/"):]):
                if not self.may_include(group, other):
                    self.report(
                        path,
                        number,
                        f"includes <{included}> ({other['name']}, floor {other['floor']}), which {group['name']}"
                        f" (floor {group['floor']}) may not; move what is shared to a lower floor, or see floors.bzl",
                    )

    def check_test(self, path):
        header = path.relative_to(self.include_root)
        test = self.repository / "tests" / header.parent / f"{header.stem}_test.cpp"
        if header.as_posix() in UNTESTED:
            return
        if not test.is_file():
            self.report(path, 1, f"has no test; add {test.relative_to(self.repository)}")
            return
        for number, line in enumerate(test.read_text().splitlines(), start=1):
            include = INCLUDE.match(line)
            if include:
                if include.group(2) != f"gradweave/{header.as_posix()}":
                    self.report(test, number, f"must include <gradweave/{header.as_posix()}> before anything else")
                return
        self.report(test, 1, f"must include <gradweave/{header.as_posix()}>")

    def run(self):
        headers = sorted([*self.include_root.rglob("*.hpp"), *self.include_root.rglob("*.cuh")])
        for path in headers:
            self.check_header(path)
            self.check_test(path)
        for header in sorted(UNTESTED):
            if not (self.include_root / header).is_file():
                self.report(pathlib.Path(__file__).resolve(), 1, f"UNTESTED names {header}, which does not exist")
        print("\n".join(self.breaches + [f"floors: {len(headers)} headers, {len(self.breaches)} breaches"]))
        return 1 if self.breaches or not headers else 0


if __name__ == "__main__":
    default = pathlib.Path(__file__).resolve().parent.parent
    sys.exit(Checker(pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else default).run())
