"""The stages of gpu-check, in order of importance."""
from beeline.tuning.process import Stage

from . import checks, collectives, jax, perf, programs, torch, vllm

STAGES = {stage.name: stage for stage in (
    Stage("facts", checks.facts),
    Stage("smoke", checks.smoke),
    Stage("multicast-off", checks.multicast_off),
    Stage("perf-graph", perf.graph),
    Stage("perf-eager", perf.eager),
    Stage("perf-routes", perf.routes),
    Stage("perf-big", perf.big),
    Stage("types", checks.types),
    Stage("nccl-tests", checks.nccl_tests, on_gpus=True),
    Stage("torch", torch.torch, on_gpus=True),
    Stage("host-time", checks.host_time),
    Stage("setup-time", checks.setup_time),
    Stage("neutrality", checks.neutrality),
    Stage("perf-groups", perf.groups, 25),
    Stage("perf-types", perf.types, 45),
    Stage("latency", perf.latency, 25),
    Stage("load", torch.load, 50, on_gpus=True),
    Stage("decode", torch.decode, 60, on_gpus=True),
    Stage("perf-gather", collectives.gather, 40),
    Stage("perf-gather-routes", collectives.gather_routes, 45),
    Stage("perf-gather-groups", collectives.gather_groups, 20),
    Stage("perf-gather-types", collectives.gather_types, 40),
    Stage("torch-gather", torch.gather, 120, on_gpus=True),
    Stage("torch-messages", torch.messages, 120, on_gpus=True),
    Stage("preloads", torch.preloads, 300, on_gpus=True),
    Stage("fsdp", torch.fsdp, 100, on_gpus=True),
    Stage("overlap", torch.overlap, 50, on_gpus=True),
    Stage("prefill", torch.prefill, 80, on_gpus=True),
    Stage("perf-others", collectives.others, 40),
    Stage("perf-narrow", perf.narrow, 300, by_name=True),
    Stage("torch-distributed", torch.distributed, on_gpus=True),
    Stage("truth", torch.truth, on_gpus=True),
    Stage("jax", jax.jax, on_gpus=True, by_name=True),  # needs JAX
    Stage("vllm", vllm.vllm, by_name=True),  # needs a network
    Stage("programs", programs.programs, 600, by_name=True),  # these need `make gpu-programs`
    Stage("early", programs.early, on_gpus=True, by_name=True),
    Stage("nested", programs.nested, on_gpus=True, by_name=True),
    Stage("soak", programs.soak, by_name=True),
    Stage("lines", programs.lines, on_gpus=True, by_name=True),
    Stage("clusters", programs.clusters, on_gpus=True, by_name=True),
)}
