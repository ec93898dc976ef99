"""The JSON schema of problem files: the fields that the program reads, what they mean, and which go together.

``generate.py`` writes it beside the module that has the fields.
"""

import json
from pathlib import Path
from typing import Any

from clearway.cli import problem_fields
from clearway.model.problem import Action

FILE = Path(problem_fields.__file__).with_name("problem.schema.json")
TITLE = "The problem file of clearway plan --problem"
# What a schema can say of text that is not printable in every dialect of regular expressions.
UNPRINTABLE = "[\\u0000-\\u001f\\u007f-\\u00a0\\u00ad\\u2000-\\u200f\\u2028-\\u202f\\u205f-\\u206f\\u3000\\ufeff]"
AMOUNTS = {
    "gpus": "GPUs without a type; on a node of one type they are of that type",
    "gpus_by_type": "GPUs by type, instead of gpus",
}
MEANINGS = {
    "AmountFields": AMOUNTS,
    "NodeFields": AMOUNTS | {"held": "what jobs hold that are no candidates and stay", "switch": "its leaf switch"},
    "NeedsFields": {
        "gpus_per_node": "GPUs of any type",
        "required_nodes": "these must be among the nodes",
        "contiguous": "nodes in a row, in the order in which nodes lists them",
        "one_switch": "nodes of one switch",
    },
    "OptionFields": {
        "checkpoint_s": "time on the file system, seconds; checkpoints are written one by one",
        "ready_s": "earliest deadline that can use this option, seconds",
        "file_system_s": "time that its data takes with the whole file system, seconds, where checkpoints share it; at "
        "most checkpoint_s; null: other checkpoints wait for it",
        "return_node_s": "cost of its return, node-seconds; it counts where lost work is equal",
    },
    "CandidateFields": {
        "nodes": "number of nodes that no other job shares",
        "holds": "what it holds on each of its nodes; default: whole nodes",
        "holds_by_node": "by node, where it differs",
        "lost_work_node_s": "when it is requeued without a checkpoint, node-seconds",
        "preempt_priority": "of its QoS or its partition's tier; slurm-default takes the lowest first",
        "ran_s": "time since its start, seconds; some rules look at it",
        "remaining_s": "time until its time limit, seconds; null: none, or not known",
        "waited_s": "time from its submission to its start, seconds",
    },
    "ProblemFields": {
        "nodes_needed": "whole nodes",
        "needs": "what the urgent job needs, instead of nodes_needed",
        "nodes": "every node that candidates name, and idle ones, in Slurm's order",
    },
}


def not_both(one: str, other: str, least: dict[str, Any]) -> dict[str, Any]:
    """Not both keys are there, each with a value that ``least`` describes."""
    return {"not": {"required": [one, other], "properties": least}}


def either(these: tuple[str, ...], those: tuple[str, ...]) -> dict[str, Any]:
    """All keys of one group are there, and none of the other."""
    return {
        "oneOf": [
            {"required": [*keys], "not": {"anyOf": [{"required": [other]} for other in others]}}
            for keys, others in ((these, those), (those, these))
        ]
    }


ONE_WAY_OF_GPUS = not_both("gpus", "gpus_by_type", {"gpus": {"minimum": 1}, "gpus_by_type": {"minProperties": 1}})
CONDITIONS: dict[str, dict[str, Any]] = {
    "AmountFields": ONE_WAY_OF_GPUS,
    "NodeFields": ONE_WAY_OF_GPUS,
    "OptionFields": {
        "if": {"required": ["action"], "properties": {"action": {"const": Action.END.value}}},
        "then": {"properties": {cost: {"const": 0} for cost in ("lost_work_node_s", "checkpoint_s")}},
    },
    "CandidateFields": {
        "allOf": [
            either(("nodes",), ("node_names",)),
            either(("options",), problem_fields.COSTS),
            not_both("holds", "holds_by_node", {}),
        ],
        "dependentRequired": {"holds": ["node_names"], "holds_by_node": ["node_names"]},
    },
    "ProblemFields": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **either(("nodes_needed",), ("needs", "nodes")),
        "if": {"required": ["needs"]},
        "then": {"properties": {"candidates": {"items": {"required": ["node_names"]}}}},
        "else": {"properties": {"candidates": {"items": {"properties": {"holds": False, "holds_by_node": False}}}}},
    },
}
LOST_WORK = {"type": "number", "minimum": 0, "maximum": problem_fields.MOST_LOST_WORK_NODE_S}


def problem_schema() -> str:
    made = problem_fields.ProblemFields.model_json_schema()
    models = made["$defs"] | {"ProblemFields": made}
    made["title"], made["properties"]["needs"]["type"] = TITLE, "object"
    models["CandidateFields"]["properties"]["node_names"]["uniqueItems"] = True
    models["OptionFields"]["properties"]["action"] = {"enum": [*Action], "type": "string"}
    del made["$defs"]["Action"]
    for name, meanings in MEANINGS.items():
        model = models[name]
        for field, about in model["properties"].items():
            about.update(LOST_WORK if field == "lost_work_node_s" else {})
            about.update({"description": meanings[field]} if field in meanings else {})
        model |= CONDITIONS.get(name, {})
    return json.dumps(_of_printable_text(made), indent=2) + "\n"


def _of_printable_text(part: Any) -> Any:
    if isinstance(part, list):
        return [_of_printable_text(each) for each in part]
    if not isinstance(part, dict):
        return part
    found = {name: _of_printable_text(each) for name, each in part.items()}
    return found | {"not": {"pattern": UNPRINTABLE}} if "maxLength" in part else found
