"""Finds the CUDA toolkit and NCCL. Both are optional.

The repository loads in any case. Its file availability.bzl says what was found:

    load("@cuda//:availability.bzl", "NEEDS_CUDA", "NEEDS_NCCL")
    cc_test(..., target_compatible_with = NEEDS_NCCL)  # skipped where there is no NCCL

Where it looks: in $CUDA_HOME if that is set and nowhere else, so that CUDA_HOME=/nonexistent builds as if there were no CUDA;
otherwise in /usr/local/cuda, /opt/cuda, /usr. NCCL: in $NCCL_HOME if that is set and nowhere else, otherwise beside CUDA, then in /usr.
"""

_LIBRARY_FOLDERS = ["lib64", "lib", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu"]

def _find_library(repository_ctx, root, names):
    """Returns the path of the first of these files below this root's library folders, or None."""
    for folder in _LIBRARY_FOLDERS:
        for name in names:
            path = repository_ctx.path("{}/{}/{}".format(root, folder, name))
            if path.exists:
                return path
    return None

def _roots(repository_ctx, variable, defaults):
    chosen = repository_ctx.os.environ.get(variable, "")
    return [chosen] if chosen else defaults

def _find_cuda(repository_ctx):
    """Returns (root, static runtime library), or None."""
    for root in _roots(repository_ctx, "CUDA_HOME", ["/usr/local/cuda", "/opt/cuda", "/usr"]):
        runtime = _find_library(repository_ctx, root, ["libcudart_static.a"])
        header = repository_ctx.path(root + "/include/cuda_runtime.h")
        if runtime and header.exists and repository_ctx.path(root + "/bin/nvcc").exists:
            return root, runtime
    return None

def _find_nccl(repository_ctx, cuda_root):
    """Returns (header, shared library), or None."""
    for root in _roots(repository_ctx, "NCCL_HOME", [cuda_root, "/usr"]):
        header = repository_ctx.path(root + "/include/nccl.h")
        library = _find_library(repository_ctx, root, ["libnccl.so.2"])
        if header.exists and library:
            return header, library
    return None

def _cuda_repository_impl(repository_ctx):
    cuda = _find_cuda(repository_ctx)
    nccl = _find_nccl(repository_ctx, cuda[0]) if cuda else None

    nvcc = "echo 'No CUDA toolkit was found.' >&2; exit 1"
    if cuda:
        root, runtime = cuda

        # By its full path: nvcc finds the rest of the toolkit beside itself.
        nvcc = "exec '{}/bin/nvcc' \"$@\"".format(root)
        repository_ctx.symlink(runtime, "lib/libcudart_static.a")
        if root == "/usr":
            # There the compiler sees the headers anyway, and to make all of /usr/include a folder of system headers
            # would break the standard library's #include_next.
            repository_ctx.file("include/cuda/README", "The toolkit's headers are in /usr/include.\n")
        else:
            repository_ctx.symlink(root + "/include", "include/cuda")
    if nccl:
        repository_ctx.symlink(nccl[0], "include/nccl/nccl.h")
        repository_ctx.symlink(nccl[1], "lib/libnccl.so.2")

    repository_ctx.file("nvcc.sh", "#!/bin/sh\n{}\n".format(nvcc), executable = True)
    repository_ctx.file("availability.bzl", "\n".join([
        '"""What was found on this machine. For target_compatible_with."""',
        "",
        "NEEDS_CUDA = " + ("[]" if cuda else '["@platforms//:incompatible"]'),
        "NEEDS_NCCL = " + ("[]" if nccl else '["@platforms//:incompatible"]'),
        "",
    ]))
    repository_ctx.symlink(repository_ctx.attr._build_file, "BUILD.bazel")

cuda_repository = repository_rule(
    implementation = _cuda_repository_impl,
    attrs = {
        "_build_file": attr.label(
            default = "//third_party/cuda:cuda.BUILD",
            allow_single_file = True,
        ),
    },
    configure = True,
    environ = ["CUDA_HOME", "NCCL_HOME"],
    local = True,
    doc = "Makes the system's CUDA toolkit and NCCL a repository.",
)
