"""Transforms: steps of a pipeline file, compiled to Spark's own expressions.

    plan = compile_steps([{"type": "mask_field", "config": {"fields": ["email"]}}], "transforms")
    frame, dead = plan.apply(wire_frame)

Only ``externalize_blob`` runs Python per record.
"""

from mainstem.pipelines.transforms.plan import Plan, compile_steps, step_schemas
from mainstem.pipelines.transforms.typed_columns import TransformResult, structured

__all__ = [
    "Plan",
    "TransformResult",
    "compile_steps",
    "step_schemas",
    "structured",
]
