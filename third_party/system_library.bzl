"""A repository rule for a library that the system has installed."""

# Later ones are looked at only where earlier ones lack the header.
_PREFIXES = ["/usr", "/usr/local", "/opt/homebrew"]

def _system_library_impl(repository_ctx):
    folder = repository_ctx.attr.header.split("/")[0]
    for prefix in _PREFIXES:
        if repository_ctx.path(prefix + "/include/" + repository_ctx.attr.header).exists:
            # One folder is linked, not all of /usr/include: a target must not see headers that it did not ask for.
            repository_ctx.symlink(prefix + "/include/" + folder, "include/" + folder)
            repository_ctx.symlink(repository_ctx.attr.build_file, "BUILD.bazel")
            return
    fail("No {} below the include folders of {}. Run ./setup.sh, or install the package {}.".format(
        repository_ctx.attr.header,
        ", ".join(_PREFIXES),
        repository_ctx.attr.debian_package,
    ))

system_library = repository_rule(
    implementation = _system_library_impl,
    attrs = {
        "build_file": attr.label(
            mandatory = True,
            allow_single_file = True,
            doc = "The repository's BUILD file. It finds the headers below include/.",
        ),
        "debian_package": attr.string(mandatory = True, doc = "For the error message."),
        "header": attr.string(mandatory = True, doc = "A header as it is included: folder, slash, file."),
    },
    local = True,
    doc = "Makes the folder that holds an installed library's headers a repository.",
)
