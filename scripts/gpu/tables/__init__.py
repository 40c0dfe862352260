"""All tables of a gpu-check run, from its records."""
from . import allreduce, calls, gather, others, plain, truth

# Of the summary and the page; then those of the page.
SUMMARY = (calls.groups, calls.types, calls.latency, calls.load, calls.decode, calls.prefill, *gather.PARTS, *others.PARTS, *truth.PARTS)
PAGE = (allreduce.graph, allreduce.eager, allreduce.routes, allreduce.torch, *SUMMARY, allreduce.setup, *plain.PARTS)


def tables(records, parts=SUMMARY):
    return [table for part in parts for table in part(records)]
