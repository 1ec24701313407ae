"""Compiles CUDA C++ with nvcc."""

load("@cuda//:availability.bzl", "NEEDS_CUDA")

def _cuda_object_impl(ctx):
    context = cc_common.merge_cc_infos(cc_infos = [dep[CcInfo] for dep in ctx.attr.deps]).compilation_context
    output = ctx.actions.declare_file(ctx.label.name + ".o")

    arguments = ctx.actions.args()
    arguments.add_all(["-std=c++20", "-O2", "-c", ctx.file.src, "-o", output])
    arguments.add_all(["-D" + define for define in context.defines.to_list()])
    arguments.add_all(context.includes, before_each = "-I")
    arguments.add_all(context.quote_includes, before_each = "-I")
    arguments.add_all(context.system_includes, before_each = "-isystem")
    arguments.add_all(ctx.attr.copts)

    ctx.actions.run(
        executable = ctx.executable._nvcc,
        arguments = [arguments],
        inputs = depset([ctx.file.src], transitive = [context.headers]),
        outputs = [output],
        mnemonic = "CudaCompile",
        progress_message = "Compiling %s with nvcc" % ctx.file.src.short_path,
        use_default_shell_env = True,
    )
    return [DefaultInfo(files = depset([output]))]

_cuda_object = rule(
    implementation = _cuda_object_impl,
    attrs = {
        "copts": attr.string_list(),
        "deps": attr.label_list(providers = [CcInfo]),
        "src": attr.label(allow_single_file = [".cu"], mandatory = True),
        "_nvcc": attr.label(
            default = "@cuda//:nvcc.sh",
            allow_single_file = True,
            cfg = "exec",
            executable = True,
        ),
    },
)

def cuda_object(name, src, deps = [], copts = [], **kwargs):
    """Compiles one .cu file to an object file, which goes into the `srcs` of a C++ target.

    Args:
      name: the target.
      src: the .cu file.
      deps: C++ libraries whose headers it includes.
      copts: more arguments for nvcc.
      **kwargs: attributes that each rule has, such as testonly or tags.
    """
    _cuda_object(
        name = name,
        src = src,
        copts = copts,
        target_compatible_with = NEEDS_CUDA,
        deps = deps + ["@cuda//:cudart"],
        **kwargs
    )
