#!/usr/bin/env python3
"""Compiles gradweave without Bazel, as a user's own build would.

  compile.py program COMPILER [FLAG...]   tests/consumer: every header, in two orders, linked and run
  compile.py tests COMPILER FILE...       test files and tests/main.cpp, linked and run

Warnings are errors. A program built by an aarch64 cross compiler runs under qemu-aarch64, where there is one.
"""

import concurrent.futures
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
STANDARD = ["-std=c++20", f"-I{ROOT / 'include'}", f"-I{ROOT}"]
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"]
# As many compilers at once as CI's machines have cores.
JOBS = 2
COMPILE_TIMEOUT_SECONDS = 600
RUN_TIMEOUT_SECONDS = 900


def execute(command, timeout):
    """Runs a command; prints it and what it said if it fails. Returns whether it succeeded."""
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        print(f"{' '.join(command)}\ndid not end within {timeout} s", flush=True)
        return False
    if done.returncode != 0:
        print(f"{' '.join(command)}\n{done.stdout}exit status {done.returncode}", flush=True)
    return done.returncode == 0


def execute_all(commands):
    """Compiles in parallel. Returns how many commands succeeded."""
    with concurrent.futures.ThreadPoolExecutor(max_workers=JOBS) as pool:
        return sum(pool.map(lambda command: execute(command, COMPILE_TIMEOUT_SECONDS), commands))


def public_headers():
    """But for those that need MPI, CUDA or NCCL, which are no part of a system's headers."""
    include = ROOT / "include"
    names = sorted(path.relative_to(include).as_posix() for path in include.rglob("*.hpp"))
    needs_sdk = ("gradweave/backend/mpi", "gradweave/backend/nccl", "gradweave/device/cuda.", "gradweave/overlap/cuda_")
    return [name for name in names if not name.startswith(needs_sdk)]


def write_includes(path, headers):
    path.write_text("#pragma once\n" + "".join(f"#include <{header}>\n" for header in headers))


def link_and_run(compiler, flags, sources, work):
    objects = [str(work / f"{number}.o") for number in range(len(sources))]
    compilations = [
        [compiler, *STANDARD, f"-iquote{work}", *WARNINGS, *flags, "-c", str(source), "-o", object_]
        for source, object_ in zip(sources, objects)
    ]
    if execute_all(compilations) != len(compilations):
        return False
    program = str(work / "program")
    if not execute([compiler, *flags, *objects, "-pthread", "-o", program], COMPILE_TIMEOUT_SECONDS):
        return False
    runner = []
    if compiler.startswith("aarch64-"):
        if not shutil.which("qemu-aarch64"):
            print("built; there is no qemu-aarch64 to run it")
            return True
        runner = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"]
    return execute([*runner, program], RUN_TIMEOUT_SECONDS)


def see_system_headers(work, *folders):
    """A cross compiler does not look into /usr/include, and must not see all of it. What a package keeps for each
    architecture apart (OpenSSL's sizes of numbers) is the same for those that are checked."""
    for folder in folders:
        (work / folder).mkdir()
        for place in (pathlib.Path("/usr/include"), *pathlib.Path("/usr/include").glob("x86_64-*")):
            for entry in (place / folder).glob("*"):
                (work / folder / entry.name).symlink_to(entry)
    return ["-isystem", str(work)]


def check_program(compiler, flags, work):
    headers = public_headers()
    write_includes(work / "forward_includes.hpp", headers)
    write_includes(work / "reverse_includes.hpp", reversed(headers))
    consumer = ROOT / "tests" / "consumer"
    print(f"{len(headers)} headers in two orders")
    flags = ["-O1", *see_system_headers(work, "boost", "openssl"), *flags]
    return link_and_run(compiler, flags, [consumer / "forward.cpp", consumer / "reverse.cpp"], work)


def check_tests(compiler, files, work):
    flags = ["-O2", *see_system_headers(work, "doctest")]
    return link_and_run(compiler, flags, [ROOT / "tests" / "main.cpp", *files], work)


def main():
    checks = {"program": check_program, "tests": check_tests}
    if len(sys.argv) < 3 or sys.argv[1] not in checks:
        sys.exit(__doc__)
    os.environ.pop("LIBRARY_PATH", None)
    with tempfile.TemporaryDirectory(prefix="gradweave-") as work:
        return 0 if checks[sys.argv[1]](sys.argv[2], sys.argv[3:], pathlib.Path(work)) else 1


if __name__ == "__main__":
    sys.exit(main())
