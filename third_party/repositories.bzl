"""Everything outside of this repository that gradweave's build uses. Nothing is downloaded."""

load("//third_party:system_library.bzl", "system_library")
load("//third_party/cuda:repository.bzl", "cuda_repository")
load("//third_party/debian_bazel:repositories.bzl", "debian_bazel_repositories")
load("//third_party/mpi:repository.bzl", "mpi_repository")
load("//third_party/peers:repository.bzl", "peers_repository")

def gradweave_repositories():
    """Declares all repositories. WORKSPACE calls this once."""
    debian_bazel_repositories()
    cuda_repository(name = "cuda")
    mpi_repository(name = "mpi")
    peers_repository(name = "peers")
    system_library(
        name = "doctest",
        build_file = "//third_party/doctest:doctest.BUILD",
        header = "doctest/doctest.h",
        debian_package = "doctest-dev",
    )
    system_library(
        name = "benchmark",
        build_file = "//third_party/benchmark:benchmark.BUILD",
        header = "benchmark/benchmark.h",
        debian_package = "libbenchmark-dev",
    )
    system_library(
        name = "cli11",
        build_file = "//third_party/cli11:cli11.BUILD",
        header = "CLI/CLI.hpp",
        debian_package = "libcli11-dev",
    )
    system_library(
        name = "nlohmann_json",
        build_file = "//third_party/nlohmann_json:nlohmann_json.BUILD",
        header = "nlohmann/json.hpp",
        debian_package = "nlohmann-json3-dev",
    )
    system_library(
        name = "boost",
        build_file = "//third_party/boost:boost.BUILD",
        header = "boost/asio.hpp",
        debian_package = "libboost1.81-dev",
    )
    system_library(
        name = "openssl",
        build_file = "//third_party/openssl:openssl.BUILD",
        header = "openssl/evp.h",
        debian_package = "libssl-dev",
    )
