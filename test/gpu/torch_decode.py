#!/usr/bin/env python3
"""Greedy decoding with a tensor-parallel model of Llama 8B's shape and random weights: tokens per second; JSON records.

  torchrun --nproc_per_node 4 test/gpu/torch_decode.py --json FILE --tag with [--turns DIR] [--layers 32]

The modules are transformers' own.  Heads, intermediate width and the head over the vocabulary are split over the ranks;
attention's and the MLP's outputs are all-reduced, so there are 2 all-reduces a layer, of batch x hidden bf16 values.  The
embedding is whole on every rank, and of the logits only each rank's best is gathered.  Keys and values lie in a cache of fixed
size, of which CONTEXT places are random.  One step is one CUDA graph, where that can be captured.

Where it is given the tokens (FORCED steps), each job compares its logits with those of the same model whose all-reduces are sums in fp64, rounded once
(torch_exact.py).  How far from these a rounding leads it sees with sums that are rounded once more.  Of two jobs that take turns, each with the
same weights, Beeline's error (root mean square) may be FACTOR times NCCL's, and FACTOR times that of one rounding more: Beeline adds in fp32 and rounds once.
What the two choose freely is counted alone: one other choice changes all that follows.
"""
import os
import statistics
import sys

os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")

import torch
import torch.distributed as dist
import torch.nn.functional as F
from transformers import AttentionInterface, LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

import torch_common
import torch_turns
from torch_exact import Exact, Rough, rms

LLAMA_8B = dict(hidden_size=4096, num_attention_heads=32, num_key_value_heads=8, head_dim=128, intermediate_size=14336, vocab_size=128256)
TINY = dict(hidden_size=256, num_attention_heads=8, num_key_value_heads=4, head_dim=32, intermediate_size=512, vocab_size=1024)
SPLIT = ("num_attention_heads", "num_key_value_heads", "intermediate_size")
BATCHES, CONTEXT, FORCED, WARM = (1, 8, 64), 256, 4, 8
FACTOR = 1.5  # one draw of roundings leads as far as another but for a tenth


def grouped_attention(module, query, key, value, attention_mask, scaling=None, **_):
    """Attention of one position, where the heads that share keys and values stand as rows of one head: nothing is repeated."""
    batch, heads, _, width = query.shape
    rows = query.reshape(batch, key.shape[1], heads // key.shape[1], width)
    out = F.scaled_dot_product_attention(rows, key, value, attn_mask=attention_mask, scale=scaling)
    return out.reshape(batch, 1, heads, width), None


AttentionInterface.register("grouped", grouped_attention)


class Places:
    """Keys and values of every layer and position: what LlamaAttention asks of a cache."""

    def __init__(self, run, config, batch, length):
        shape = (config.num_hidden_layers, batch, config.num_key_value_heads, length, config.head_dim)
        generator = torch.Generator(device=run.device).manual_seed(2000 + run.rank)
        self.keys, self.values = (torch.zeros(shape, dtype=torch.bfloat16, device=run.device) for _ in range(2))
        for side in (self.keys, self.values):
            side[..., :CONTEXT, :].normal_(generator=generator)
        self.position = torch.zeros(1, dtype=torch.long, device=run.device)

    def update(self, keys, values, layer, *_, **__):
        for place, new in ((self.keys, keys), (self.values, values)):
            place[layer].index_copy_(2, self.position, new)
        return self.keys[layer], self.values[layer]


class Model:
    def __init__(self, run, shape, layers, attention="grouped"):
        self.run = run
        split = {name: shape[name] // run.size for name in SPLIT}
        for name in (*SPLIT, "vocab_size"):
            if shape[name] % run.size:
                raise ValueError(f"{name} {shape[name]} is no multiple of {run.size} ranks")
        self.config = LlamaConfig(**{**shape, **split}, num_hidden_layers=layers, max_position_embeddings=4096, tie_word_embeddings=False)
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.bfloat16)
        try:
            with torch.device("meta"):
                whole = LlamaForCausalLM(self.config).eval().requires_grad_(False)
                whole.lm_head = torch.nn.Linear(shape["hidden_size"], shape["vocab_size"] // run.size, bias=False).requires_grad_(False)
        finally:
            torch.set_default_dtype(before)
        whole.to_empty(device=run.device)
        whole.model.rotary_emb = LlamaRotaryEmbedding(self.config).to(run.device)
        self.config._attn_implementation = attention
        self.layers, self.embed, self.norm, self.head = whole.model.layers, whole.model.embed_tokens, whole.model.norm, whole.lm_head
        self.rotary, self.all_reduce = whole.model.rotary_emb, dist.all_reduce
        self.fill(whole)
        for layer in self.layers:
            layer.self_attn.o_proj.register_forward_hook(self.reduce)
            layer.mlp.down_proj.register_forward_hook(self.reduce)

    def fill(self, whole):
        """Random weights: the same in every job; of split ones each rank has its own."""
        shared = torch.Generator(device=self.run.device).manual_seed(1)
        own = torch.Generator(device=self.run.device).manual_seed(1000 + self.run.rank)
        for name, weight in whole.named_parameters():
            if "norm" in name:
                weight.fill_(1)
            else:
                weight.normal_(0, 0.02, generator=shared if "embed_tokens" in name else own)

    def reduce(self, _module, _inputs, output):
        self.all_reduce(output)
        return output


class Decoder:
    """One batch size: static inputs and outputs, and the graph of one step."""

    def __init__(self, run, model, batch, length):
        self.run, self.model, self.batch, self.steps = run, model, batch, length - CONTEXT
        self.cache = Places(run, model.config, batch, length)
        self.columns = torch.arange(length, device=run.device)
        self.rows = model.head.out_features
        generator = torch.Generator().manual_seed(7)
        self.prompt = torch.randint(model.config.vocab_size, (FORCED, batch, 1), generator=generator).to(run.device)
        self.token = self.prompt[0].clone()
        self.history = torch.zeros(batch, length, dtype=torch.long, device=run.device)
        self.logits = torch.zeros(batch, self.rows, dtype=torch.bfloat16, device=run.device)
        self.gathered = torch.zeros(run.size * batch, 2, device=run.device)
        self.graph, self.why = None, None
        self.restart()
        for _ in range(2):
            self.step()
        run.synchronize()
        if run.cuda:
            self.graph, self.why = run.captured(self.step)

    def restart(self):
        self.cache.position.fill_(CONTEXT)
        self.token.copy_(self.prompt[0])

    @torch.no_grad()
    def step(self):
        model, position = self.model, self.cache.position
        hidden = model.embed(self.token)
        angles = model.rotary(hidden, position_ids=position[None])
        mask = (self.columns <= position)[None, None, None]
        for layer in model.layers:
            hidden = layer(hidden, attention_mask=mask, position_embeddings=angles, past_key_values=self.cache)
            hidden = hidden[0] if isinstance(hidden, tuple) else hidden
        self.logits.copy_(model.head(model.norm(hidden[:, -1])))
        best, index = self.logits.float().max(-1)
        # Token numbers are exact in fp32.
        dist.all_gather_into_tensor(self.gathered, torch.stack((best, (index + self.run.rank * self.rows).float()), -1))
        of_rank = self.gathered.view(self.run.size, self.batch, 2)
        winner = of_rank[..., 0].argmax(0, keepdim=True)
        self.token.copy_(of_rank[..., 1].gather(0, winner).long().view(-1, 1))
        self.history.index_copy_(1, position, self.token)
        position.add_(1)

    def go(self, steps, graph=True):
        for _ in range(steps):
            if self.graph and graph:
                self.graph.replay()
            else:
                self.step()

    def forced(self, all_reduce=dist.all_reduce, graph=False):
        """Logits of this rank's words, and choices, after the same tokens in every job."""
        self.restart()
        logits, chosen = [], []
        self.model.all_reduce = all_reduce
        for token in self.prompt:
            self.token.copy_(token)
            self.go(1, graph)
            logits.append(self.logits.clone())
            chosen.append(self.token.clone())
        self.model.all_reduce = dist.all_reduce
        self.run.synchronize()
        return torch.stack(logits).cpu(), torch.stack(chosen).cpu()

    def errors(self):
        """Of the library's logits, in a graph and eager, and of those with one rounding more; the exact ones; choices."""
        exact, _ = self.forced(Exact())
        rough, _ = self.forced(Rough(self.run.device))
        runs = [self.forced(), *([self.forced(graph=True)] if self.graph else [])]
        return dict(exact=exact, rough=rms(rough - exact), error=max(rms(logits - exact) for logits, _ in runs),
                    most=max(float((logits - exact).abs().max()) for logits, _ in runs), chosen=runs[-1][1])

    def timed(self):
        """Seconds of a step on the slowest rank, and the tokens."""
        self.restart()
        self.go(WARM)
        self.run.meet()
        self.restart()
        self.go(1)  # not counted: brings the ranks together
        seconds = self.run.clocked(lambda: self.go(self.steps - 1)) / (self.steps - 1)
        tokens = self.history[:, CONTEXT:CONTEXT + self.steps].cpu()
        return max(self.run.everyone(seconds)), tokens


def measure(run, decoder, found):
    """One round of one batch size."""
    seconds, tokens = decoder.timed()
    found.setdefault("tokens", tokens)
    found.setdefault("seconds", []).append(seconds)
    run.check(bool((tokens == found["tokens"]).all()), f"decode, batch {decoder.batch}: two runs gave other tokens")
    if "errors" not in found:
        found["errors"] = decoder.errors()


def report(run, decoder, found, options):
    step = statistics.median(found["seconds"])
    run.check(len({str(t) for t in run.everyone(found["tokens"].sum(0).tolist())}) == 1, f"decode, batch {decoder.batch}: ranks differ")
    run.record(kind="decode", batch=decoder.batch, layers=options.layers, steps=decoder.steps, context=CONTEXT, rounds=len(found["seconds"]),
               step_us=round(step * 1e6, 1), tokens_s=round(decoder.batch / step, 1), step_us_all=[round(s * 1e6, 1) for s in found["seconds"]],
               graph=decoder.graph is not None, why=decoder.why, message=decoder.batch * decoder.model.config.hidden_size * 2,
               beeline=torch_common.beeline_serves())
    if run.rank == 0:
        how = "graph" if decoder.graph else f"eager ({decoder.why})"
        print(f"batch {decoder.batch:>3}: {decoder.batch / step:9.1f} tokens/s, {step * 1e6:9.1f} us a step, {how}", flush=True)


def judge(run, what, one, other):
    """What both jobs found of their logits, as a record has it; the sides with Beeline and without."""
    mine, base = (one, other) if one["beeline"] else (other, one)
    rough = max(one["rough"], other["rough"])
    run.check(torch.equal(one["exact"], other["exact"]), f"{what}: the jobs' exact logits differ: something else than sums is wrong")
    run.check(mine["error"] <= FACTOR * base["error"], f"{what}: error {mine['error']:.5f}, over {FACTOR} times {base['error']:.5f} without Beeline")
    run.check(mine["error"] <= FACTOR * rough, f"{what}: error {mine['error']:.5f}, over {FACTOR} times {rough:.5f} of one rounding more")
    return mine, base, dict(error=mine["error"], error_without=base["error"], rough=rough, deviation=float(one["exact"].double().std()), factor=FACTOR)


def compare(run, turns, batches):
    """Rank 0 of the job that came first: what both jobs left in their folder."""
    tags = turns.arrived("results")
    for batch in batches:
        one, other = (torch.load(turns.path(f"{tag}-{batch}")) for tag in tags[:2])
        mine, base, found = judge(run, f"decode, batch {batch}", one, other)
        choices, tokens = one["chosen"] != other["chosen"], one["tokens"] != other["tokens"]
        first = int(tokens.any(0).nonzero()[0]) if bool(tokens.any()) else None
        run.record(kind="decode-compare", batch=batch, most=mine["most"], most_without=base["most"], choices=choices.numel(), choices_differ=int(choices.sum()),
                   tokens=tokens.numel(), tokens_differ=int(tokens.sum()), sequences_differ=int(tokens.any(1).sum()), first_differing_step=first, **found)
        print(f"batch {batch:>3}: error of the logits with Beeline {mine['error']:.5f} (at most {mine['most']:.4f}), without {base['error']:.5f} (at most "
              f"{base['most']:.4f}), with one rounding more {found['rough']:.5f}, of deviation {found['deviation']:.3f}; given the same tokens {int(choices.sum())} of "
              f"{choices.numel()} choices differ, left alone {int(tokens.sum())} of {tokens.numel()} tokens", flush=True)


def decode(run, options, turns):
    with turns.turn(run):
        model = Model(run, TINY if options.tiny else LLAMA_8B, options.layers)
        decoders = [Decoder(run, model, batch, CONTEXT + options.steps) for batch in options.batches]
    turns.arrive("start")
    found = {decoder.batch: {} for decoder in decoders}
    for _ in torch_turns.rounds(run, options):
        for decoder in decoders:
            with turns.turn(run):
                measure(run, decoder, found[decoder.batch])
    for decoder in decoders:
        report(run, decoder, found[decoder.batch], options)
    if turns.leads:
        for batch, result in found.items():
            torch.save(dict(result["errors"], tokens=result["tokens"], beeline=torch_common.beeline_serves()), turns.path(f"{options.tag}-{batch}"))
        both = turns.arrive("results")
        run.check(both, "decode: the other job's results did not come")
        if both and turns.arrived("results")[0] == options.tag:
            compare(run, turns, found)


def main():
    p = torch_common.parser(__doc__)
    torch_turns.add_arguments(p, 10)
    p.add_argument("--layers", type=int, default=32)
    p.add_argument("--steps", type=int, default=64, help="tokens a sequence (default: %(default)s)")
    p.add_argument("--batches", type=lambda text: [int(n) for n in text.split(",")], default=list(BATCHES))
    p.add_argument("--tiny", action="store_true", help="a small shape, to try the program")
    torch_common.job("decode", decode, p.parse_args())


if __name__ == "__main__":
    sys.exit(main())
