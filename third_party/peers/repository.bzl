"""Finds the libraries that //benchmarks:all_reduce compares with: Gloo, Open MPI and MPICH, as Debian installs them.

All are optional. The repository's file availability.bzl says in PEERS which were found; there is a target of each name.
"""

# name: header and library; @ stands for the machine's folder of libraries.
_PEERS = {
    "gloo": struct(headers = "/usr/include/gloo", below = "include/gloo/gloo", probe = "allreduce.h", library = "/usr/lib/libgloo.so"),
    "mpich": struct(headers = "/usr/include/@/mpich", below = "include/mpich", probe = "mpi.h", library = "/usr/lib/@/libmpich.so"),
    "openmpi": struct(headers = "/usr/lib/@/openmpi/include", below = "include/openmpi", probe = "mpi.h", library = "/usr/lib/@/openmpi/lib/libmpi.so"),
}

_TARGET = """
cc_library(
    name = "{name}",
    hdrs = glob(["include/{name}/**"]),
    # The C interface alone: that of C++ needs a library more.
    defines = ["OMPI_SKIP_MPICXX=1", "MPICH_SKIP_MPICXX=1"],
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
    doc = "Makes the system's Gloo, Open MPI and MPICH a repository.",
)
