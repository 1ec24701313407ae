#!/usr/bin/env python3
"""One rank of PyTorch's DistributedDataParallel, over gloo, for tests/laws/ddp_test.cpp.

Usage: ddp_rank.py FOLDER RANK
Runs the programs of FOLDER/rankRANK.json, those of one world size after another, and writes what the gradients are after each step to
FOLDER/rankRANK.out: a line for each slot, with hexadecimal numbers, or `none` where no rank has used it. Ends with 77 where
there is no PyTorch.
"""

import contextlib
import datetime
import json
import pathlib
import sys

NO_TORCH = 77
TIMEOUT = datetime.timedelta(seconds=30)
BUCKET_MEBIBYTES = 200 / 2**20  # a few slots have several buckets

try:
    import torch
    import torch.distributed as distributed
    from torch.nn.parallel import DistributedDataParallel
except ImportError as error:
    print(f"there is no PyTorch: {error}")
    sys.exit(NO_TORCH)


class GivenGradients(torch.nn.Module):
    """Its loss is the sum of products of parameters with what they shall have as gradients."""

    def __init__(self, slots):
        super().__init__()
        make = lambda kind, elements: torch.nn.Parameter(torch.ones(elements, dtype=getattr(torch, kind)))
        self.values = torch.nn.ParameterList([make(*slot) for slot in slots])
        self.always = make("float32", 1)  # a loss has to depend on something

    def forward(self, uses):
        loss = self.always.double().sum()
        for use in uses:
            value = self.values[use["slot"]]
            for _ in range(use["times"]):
                loss = loss + (value * torch.tensor(use["gradient"], dtype=value.dtype)).sum().double()
        return loss


def run(program, out):
    module = GivenGradients(program["slots"])
    model = DistributedDataParallel(
        module, find_unused_parameters=program["zero_fill"], bucket_cap_mb=BUCKET_MEBIBYTES
    )
    joined = (
        model.join(divide_by_initial_world_size=not program["joined_left_out"])
        if program["uneven"]
        else contextlib.nullcontext()
    )
    with joined:
        for passes in program["steps"]:
            model.zero_grad(set_to_none=True)
            for number, uses in enumerate(passes):
                is_last = number + 1 == len(passes)
                with contextlib.nullcontext() if is_last else model.no_sync():
                    model(uses).backward()
            for value in module.values:
                out.append("none" if value.grad is None else " ".join(x.hex() for x in value.grad.tolist()))


def main(folder, rank):
    torch.set_num_threads(1)
    out = []
    for size, programs in json.loads((folder / f"rank{rank}.json").read_text()):
        distributed.init_process_group(
            "gloo", init_method=f"file://{folder}/store{size}", rank=rank, world_size=size, timeout=TIMEOUT
        )
        for program in programs:
            run(program, out)
        distributed.barrier()  # nobody is left behind by those that end first
        distributed.destroy_process_group()
    (folder / f"rank{rank}.out").write_text("\n".join(out) + "\n")


main(pathlib.Path(sys.argv[1]), int(sys.argv[2]))
