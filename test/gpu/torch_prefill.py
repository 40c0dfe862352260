#!/usr/bin/env python3
"""Prefill with the tensor-parallel model of torch_decode.py, of Llama 8B's shape: milliseconds a step; JSON records.

  torchrun --nproc_per_node 4 test/gpu/torch_prefill.py --json FILE --tag with [--turns DIR] [--layers 32]

A step takes one sequence of TOKENS through all layers and its last place through the head: 2 all-reduces a layer, of tokens x hidden bf16 values,
each between two products that need it, so none is beside another kernel.  It is one CUDA graph, where that can be captured, unless --eager says
otherwise: the modules take the host some 40 ms a step, longer than the GPU up to 2048 tokens.

The last place's logits are judged as those of torch_decode.py are.
"""
import statistics
import sys

import torch
import torch.distributed as dist

import torch_common
import torch_turns
from torch_decode import LLAMA_8B, TINY, Model, judge
from torch_exact import Exact, Rough, rms

TOKENS, STEPS = (512, 1024, 2048, 4096, 8192), 4


class Prefill:
    """One length: its tokens, the same on all ranks."""

    def __init__(self, run, model, tokens):
        self.run, self.model, self.count = run, model, tokens
        generator = torch.Generator().manual_seed(7)
        self.tokens = torch.randint(model.config.vocab_size, (1, tokens), generator=generator).to(run.device)
        self.places = torch.arange(tokens, device=run.device)[None]
        self.last = torch.zeros(1, model.head.out_features, dtype=torch.bfloat16, device=run.device)
        self.seconds, self.graph = [], None
        self.step()
        run.synchronize()
        if run.cuda and not run.options.eager:
            self.graph, why = run.captured(self.step)
            if why:
                run.skip(f"graph of {tokens} tokens", why)

    def go(self, steps):
        for _ in range(steps):
            if self.graph:
                self.graph.replay()
            else:
                self.step()

    @torch.no_grad()
    def step(self):
        hidden = self.model.embed(self.tokens)
        angles = self.model.rotary(hidden, position_ids=self.places)
        for layer in self.model.layers:
            hidden = layer(hidden, attention_mask=None, position_embeddings=angles)
            hidden = hidden[0] if isinstance(hidden, tuple) else hidden
        self.last.copy_(self.model.head(self.model.norm(hidden[:, -1])))

    def measure(self):
        """One round: a step on the slowest rank."""
        self.go(1)  # not counted: brings the ranks together
        seconds = self.run.clocked(lambda: self.go(STEPS)) / STEPS
        self.seconds.append(max(self.run.everyone(seconds)))

    def logits(self, all_reduce=dist.all_reduce):
        self.last.zero_()
        self.model.all_reduce = all_reduce
        self.step()
        self.model.all_reduce = dist.all_reduce
        return self.last.clone().cpu()

    def as_timed(self):
        self.last.zero_()
        self.go(1)
        return self.last.clone().cpu()

    def errors(self):
        exact, rough, logits = self.logits(Exact()), self.logits(Rough(self.run.device)), self.logits()
        self.run.check_equal(self.as_timed(), logits, f"prefill, {self.count} tokens: as it is timed")
        return dict(exact=exact, rough=rms(rough - exact), error=rms(logits - exact), beeline=torch_common.beeline_serves())


def report(run, prefill, layers):
    step = statistics.median(prefill.seconds)
    run.record(kind="prefill", tokens=prefill.count, layers=layers, steps=STEPS, rounds=len(prefill.seconds), step_ms=round(step * 1e3, 3),
               step_ms_all=[round(s * 1e3, 3) for s in prefill.seconds], graph=prefill.graph is not None, message=prefill.count * prefill.model.config.hidden_size * 2,
               beeline=torch_common.beeline_serves())
    if run.rank == 0:
        print(f"{prefill.count:>5} tokens: {step * 1e3:8.2f} ms a step", flush=True)


def compare(run, turns, prefill):
    """Rank 0 of the job that came first: what both jobs left in their folder."""
    one, other = (torch.load(turns.path(f"{tag}-{prefill.count}")) for tag in turns.arrived("results")[:2])
    _, _, found = judge(run, f"prefill, {prefill.count} tokens", one, other)
    run.record(kind="prefill-compare", tokens=prefill.count, **found)


def prefill(run, options, turns):
    with turns.turn(run):
        model = Model(run, TINY if options.tiny else LLAMA_8B, options.layers, attention="sdpa")
        lengths = [Prefill(run, model, tokens) for tokens in options.tokens]
        results = [length.errors() for length in lengths]
    turns.arrive("start")
    for _ in torch_turns.rounds(run, options):
        for length in lengths:
            with turns.turn(run):
                length.measure()
    for length, result in zip(lengths, results):
        report(run, length, options.layers)
        if turns.leads:
            torch.save(result, turns.path(f"{options.tag}-{length.count}"))
    if turns.leads:
        both = turns.arrive("results")
        run.check(both, "prefill: the other job's results did not come")
        for length in lengths if both and turns.arrived("results")[0] == options.tag else ():
            compare(run, turns, length)


def main():
    p = torch_common.parser(__doc__)
    torch_turns.add_arguments(p, 10)
    p.add_argument("--layers", type=int, default=32)
    p.add_argument("--tokens", type=lambda text: [int(n) for n in text.split(",")], default=list(TOKENS))
    p.add_argument("--eager", action="store_true")
    p.add_argument("--tiny", action="store_true", help="a small shape, to try the program")
    torch_common.job("prefill", prefill, p.parse_args())


if __name__ == "__main__":
    sys.exit(main())
