"""The floors: which header belongs to which Bazel target, and which floor that target stands on.

BUILD.bazel makes a cc_library of each entry and .ci/floors.py checks every #include against it. So this file is Starlark and
Python both, and holds nothing but data. A header may include headers of its own entry and of the entries that stand on lower
floors; `also` names entries of the same floor that it may include besides, and `floor_below` lowers the limit.
"""

FLOORS = [
    {
        "name": "base",
        "floor": 0,
        "headers": [
            "assert.hpp",
            "config.hpp",
            "description.hpp",
            "descriptor.hpp",
            "environment_variable.hpp",
            "error.hpp",
            "extent.hpp",
            "host_memory.hpp",
            "version.hpp",
            "wire.hpp",
        ],
    },
    {
        "name": "element",
        "floor": 1,
        "headers": [
            "element.hpp",
            "element/*.hpp",
            "memory_space.hpp",
            "reduction.hpp",
        ],
    },
    {
        "name": "tensor",
        "floor": 2,
        "headers": [
            "manifest.hpp",
            "tensor.hpp",
            "tensor/*.hpp",
        ],
    },
    {
        "name": "concepts",
        "floor": 3,
        "headers": [
            "*/concept.hpp",
            "bucketing/slice.hpp",
            "*/stream_concept.hpp",
            "device/device_concept.hpp",
            "device/records.hpp",
            "statistics.hpp",
            "step_rules.hpp",
        ],
    },
    {
        "name": "collective",
        "floor": 4,
        "headers": ["collective/*.hpp"],
    },
    {
        "name": "diagnostics",
        "floor": 4,
        "headers": ["diagnostics/*.hpp"],
    },
    {
        "name": "policies",
        "floor": 4,
        "also": ["collective"],
        "headers": [
            "backend/groups.hpp",
            "backend/kin.hpp",
            "backend/loopback.hpp",
            "backend/scheduled.hpp",
            "bucketing/*.hpp",
            "compression/*.hpp",
            "device/*.hpp",
            "launch.hpp",
            "one_of.hpp",
            "overlap/*.hpp",
            "transport/control_channel.hpp",
            "transport/control_frames.hpp",
            "transport/environment.hpp",
            "transport/failure_message.hpp",
            "transport/in_process.hpp",
            "transport/lending_desk.hpp",
            "transport/neighbour_socket.hpp",
            "transport/neighbourhood.hpp",
            "transport/readiness.hpp",
            "transport/rendezvous_options.hpp",
            "transport/segment.hpp",
            "transport/shared_block.hpp",
            "transport/shared_memory.hpp",
            "transport/spinning.hpp",
            "transport/settlement.hpp",
        ],
        "except": [
            "*/concept.hpp",
            "bucketing/slice.hpp",
            "*/stream_concept.hpp",
            "device/cuda.hpp",
            "device/device_concept.hpp",
            "device/records.hpp",
            "overlap/cuda_stream.hpp",
        ],
    },
    # Floor 5 holds what needs an SDK: to choose one of those is to include it. `sdk` is what it depends on besides.
    {
        "name": "tcp",
        "floor": 5,
        "sdk": [
            "@boost//:asio",
            "@openssl//:crypto",
        ],
        "headers": [
            "backend/tcp.hpp",
            "transport/asio.hpp",
            "transport/asio_group.hpp",
            "transport/asio_link.hpp",
            "transport/authentication.hpp",
            "transport/call.hpp",
            "transport/envelope.hpp",
            "transport/interfaces.hpp",
            "transport/introduction.hpp",
            "transport/link_builder.hpp",
            "transport/meeting_file.hpp",
            "transport/mesh.hpp",
            "transport/mesh_barrier.hpp",
            "transport/reception.hpp",
            "transport/rendezvous.hpp",
            "transport/stream.hpp",
        ],
    },
    {
        "name": "tls",
        "floor": 5,
        "also": ["tcp"],
        "sdk": ["@openssl//:ssl"],
        "headers": [
            "backend/tls.hpp",
            "transport/tls.hpp",
        ],
    },
    # `needs` names what a system may lack: the target is skipped there, and no test of the other floors takes it.
    {
        "name": "mpi",
        "floor": 5,
        "needs": "mpi",
        "sdk": ["@mpi//:mpi"],
        "headers": [
            "backend/mpi.hpp",
            "backend/mpi/*.hpp",
        ],
    },
    # For nvcc, or for the CUDA runtime. Headers only: a program links @cuda//:cudart, and a test may link something else.
    {
        "name": "cuda",
        "floor": 5,
        "needs": "cuda",
        "compiler": "nvcc",
        "sdk": ["@cuda//:cudart_headers"],
        "headers": [
            "device/*.cuh",
            "device/cuda.hpp",
            "overlap/cuda_stream.hpp",
        ],
    },
    # Headers of CUDA and NCCL only: a program links @cuda//:nccl and @cuda//:cudart, and a test may link something else.
    {
        "name": "nccl",
        "floor": 5,
        "needs": "nccl",
        "sdk": ["@cuda//:nccl_headers"],
        "headers": [
            "backend/nccl.hpp",
            "backend/nccl/*.hpp",
        ],
    },
    # Knows the concepts and none of their models: the umbrella header names the defaults.
    {
        "name": "synchronizer",
        "floor": 6,
        "floor_below": 4,
        "also": ["diagnostics"],
        "headers": [
            "synchronizer.hpp",
            "synchronizer/*.hpp",
        ],
    },
    {
        "name": "gradweave",
        "floor": 7,
        "floor_below": 5,
        "also": ["synchronizer"],
        "headers": ["gradweave.hpp"],
    },
    {
        "name": "testing",
        "floor": 8,
        "floor_below": 5,
        "also": [
            "gradweave",
            "synchronizer",
        ],
        "headers": ["testing/*.hpp"],
    },
]
