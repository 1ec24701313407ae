"""Finds what //benchmarks:all_reduce compares with, besides the implementations of MPI: Gloo, as Debian installs it.

It is optional. The repository's file availability.bzl says in PEERS which were found; there is a target of each name.
"""

# name: header and library; @ stands for the machine's folder of libraries.
_PEERS = {
    "gloo": struct(headers = "/usr/include/gloo", below = "include/gloo/gloo", probe = "allreduce.h", library = "/usr/lib/libgloo.so"),
}

_TARGET = """
cc_library(
    name = "{name}",
    hdrs = glob(["include/{name}/**"]),
    includes = ["include/{name}"],
    linkopts = ["{library}"],
    visibility = ["//visibility:public"],
)
"""

def _peers_repository_impl(repository_ctx):
    found = []
    build = "# What was found of the libraries that the benchmarks compare with.\n"
    for machine in ["x86_64-linux-gnu", "aarch64-linux-gnu"]:
        for name, peer in _PEERS.items():
            headers = peer.headers.replace("@", machine)
            library = peer.library.replace("@", machine)
            if name in found or not repository_ctx.path(headers + "/" + peer.probe).exists or not repository_ctx.path(library).exists:
                continue
            found.append(name)
            repository_ctx.symlink(headers, peer.below)
            build += _TARGET.format(name = name, library = library)
    repository_ctx.file("BUILD.bazel", build)
    repository_ctx.file("availability.bzl", '"""What was found on this machine."""\n\nPEERS = {}\n'.format(repr(found)))

peers_repository = repository_rule(
    implementation = _peers_repository_impl,
    configure = True,
    local = True,
    doc = "Makes the system's Gloo a repository.",
)
