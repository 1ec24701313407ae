"""Finds implementations of MPI: Open MPI and MPICH, as Debian installs them, and one that the environment names.

All are optional. There is a target of each name, which is empty, and skips what depends on it, where there is none; the
repository's file availability.bzl says in MPIS which were found. The target `mpi` is the one that gradweave is built with: what
is below MPI_HOME where that is set, else Open MPI.
"""

# name: header and library; @ stands for the machine's folder of libraries.
_MPIS = {
    "mpich": struct(headers = "/usr/include/@/mpich", library = "/usr/lib/@/libmpich.so"),
    "openmpi": struct(headers = "/usr/lib/@/openmpi/include", library = "/usr/lib/@/openmpi/lib/libmpi.so"),
}

_MACHINES = ["x86_64-linux-gnu", "aarch64-linux-gnu"]

_FOUND = """
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

_LACKING = """
cc_library(
    name = "{name}",
    target_compatible_with = ["@platforms//:incompatible"],
    visibility = ["//visibility:public"],
)
"""

def _find(repository_ctx, headers, libraries):
    """Returns (headers, library) if both are there, or None."""
    for machine in _MACHINES:
        folder = headers.replace("@", machine)
        for library in libraries:
            library = library.replace("@", machine)
            if repository_ctx.path(folder + "/mpi.h").exists and repository_ctx.path(library).exists:
                return folder, library
    return None

def _mpi_repository_impl(repository_ctx):
    places = {
        name: _find(repository_ctx, mpi.headers, [mpi.library])
        for name, mpi in _MPIS.items()
    }
    home = repository_ctx.os.environ.get("MPI_HOME", "")
    if home:
        places["mpi"] = _find(repository_ctx, home + "/include", [home + "/lib64/libmpi.so", home + "/lib/libmpi.so"])
    else:
        places["mpi"] = places["openmpi"]

    build = "# What was found of MPI.\n"
    for name, place in places.items():
        if place:
            repository_ctx.symlink(place[0], "include/" + name)
            build += _FOUND.format(name = name, library = place[1])
        else:
            build += _LACKING.format(name = name)
    repository_ctx.file("BUILD.bazel", build)
    repository_ctx.file("availability.bzl", '"""What was found on this machine."""\n\nMPIS = {}\n'.format(
        repr([name for name in _MPIS.keys() if places[name]]),
    ))

mpi_repository = repository_rule(
    implementation = _mpi_repository_impl,
    configure = True,
    environ = ["MPI_HOME"],
    local = True,
    doc = "Makes the system's implementations of MPI a repository.",
)
