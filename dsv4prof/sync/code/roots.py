"""Where a serving step begins, and where it certainly is not: globs on `module:qualname`, each with its reason."""

from __future__ import annotations

from typing import NamedTuple


class Pattern(NamedTuple):
    """A glob on `module:qualname`, and why it is here."""

    glob: str
    reason: str


HOT: tuple[Pattern, ...] = (
    # Loops of schedulers and engines
    Pattern("*:*event_loop", "a loop of a scheduler: one turn a step"),
    Pattern("*:event_loop_*", "a loop of a scheduler: one turn a step"),
    Pattern("*:*.event_loop_*", "a loop of a scheduler: one turn a step"),
    Pattern("*:*sched*_loop", "a loop of a scheduler: one turn a step"),
    Pattern("*:*engine_loop", "an engine's loop: one turn a step"),
    Pattern("*:*busy_loop", "an engine's loop: one turn a step"),
    # SGLang
    Pattern("*managers.scheduler*:*event_loop*", "the scheduler's loop: one turn a step"),
    Pattern("*:*.run_batch", "runs one scheduled batch"),
    Pattern("*:*.process_batch_result*", "between two steps of a loop that does not overlap"),
    Pattern("*:*.get_next_batch_to_run", "chooses the next batch while the device may run dry"),
    Pattern("*:*.forward_batch_generation*", "one forward pass and its sampling"),
    Pattern("*:*.forward_batch_*", "one forward pass by kind"),
    Pattern("*:*.init_forward_metadata*", "attention metadata, once a step"),
    Pattern("*:*_replay*", "replay of a captured graph, once a step"),
    Pattern("*:*.replay*", "replay of a captured graph, once a step"),
    Pattern("*speculative*:*.draft", "the draft pass of a speculative step"),
    Pattern("*speculative*:*.verify", "the verify pass of a speculative step"),
    Pattern("*speculative*:*.draft_extend*", "the draft model catches up, once a step"),
    # vLLM
    Pattern("*:*.execute_model", "one step of the worker"),
    Pattern("*:*.sample_tokens", "sampling, once a step"),
    Pattern("*:*MetadataBuilder.build*", "attention metadata, once a step"),
    Pattern("*:*.propose", "the draft of a speculative step"),
    # dsv4_engine
    Pattern("*engine:*.run", "the engine's loop"),
    # Serving code with torch in general
    Pattern("*:*.forward", "a module's forward pass"),
    Pattern("*:*.forward_*", "a forward pass by kind"),
    Pattern("*:forward", "a forward pass"),
    Pattern("*:*.__call__", "called as a function: processors of logits, samplers"),
    Pattern("*:*.generate", "generation: every token goes through here"),
    Pattern("*:generate", "generation: every token goes through here"),
    Pattern("*:*._sample", "generation's token loop"),
    Pattern("*:*._beam_search", "generation's token loop"),
    Pattern("*:*._assisted_decoding", "generation's token loop"),
    Pattern("*:*.get_candidates", "the draft of assisted generation, once a step"),
    Pattern("*:*.sample", "sampling, once a step"),
    Pattern("*:*.decode*", "decoding, once a token"),
    Pattern("*:decode*", "decoding, once a token"),
    Pattern("*:*.step", "one step"),
    Pattern("*:step", "one step"),
    Pattern("*:*.prepare_*", "prepares the inputs of a step"),
    Pattern("*:prepare_*", "prepares the inputs of a step"),
    Pattern("*:*_in_graph", "recorded into or run beside a graph"),
)

COLD: tuple[Pattern, ...] = (
    Pattern("*:*get_*event_loop", "gives the loop of asyncio"),
    Pattern("*:*ensure_event_loop", "gives the loop of asyncio"),
    Pattern("*:*__init__", "once an object"),
    Pattern("*:*__post_init__", "once an object"),
    Pattern("*:*__repr__", "for people who debug"),
    Pattern("*:*__str__", "for people who debug"),
    Pattern("*:*__del__", "at the end"),
    Pattern("*:*load_*", "loading of weights and files"),
    Pattern("*:*_load*", "loading of weights and files"),
    Pattern("*:*weight_loader*", "loading of weights"),
    Pattern("*:*process_weights_after_loading*", "loading of weights"),
    Pattern("*:*update_weights*", "weights from a trainer, between steps"),
    Pattern("*:*.capture", "capture of graphs, at the start"),
    Pattern("*:*.capture_one*", "capture of graphs, at the start"),
    Pattern("*:*_capture", "capture of graphs, at the start"),
    Pattern("*:*_capture_cuda_graph*", "capture of graphs, at the start"),
    Pattern("*:*capture_*graph*", "capture of graphs, at the start"),
    Pattern("*:*graph_capture*", "capture of graphs, at the start"),
    Pattern("*:*capture_model*", "capture of graphs, at the start"),
    Pattern("*:*warmup*", "before the first request"),
    Pattern("*:*warm_up*", "before the first request"),
    Pattern("*:*profile_*", "measures memory at the start"),
    Pattern("*:*_dummy_run*", "before the first request"),
    Pattern("*:*dummy*", "stands in for a request"),
    Pattern("*:*prepare_*_weight*", "once, after loading"),
    Pattern("*:prepare_model*", "once, at the start"),
    Pattern("*:*benchmark*", "measures kernels"),
    Pattern("*:*autotune*", "measures kernels"),
    Pattern("*:*debug*", "for people who debug"),
    Pattern("*:*_ref", "a reference in plain torch for tests"),
    Pattern("*:*reference*", "a reference in plain torch for tests"),
    Pattern("tests.*:*", "tests"),
    Pattern("*.tests.*:*", "tests"),
    Pattern("test*:*", "tests"),
    Pattern("*.test_*:*", "tests"),
    Pattern("*benchmark*:*", "benchmarks"),
    Pattern("*:*shutdown*", "at the end"),
)
