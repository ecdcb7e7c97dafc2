"""A LeWM so small that a test can train it."""

TINY_LEWM = {
    "kind": "lewm-small",
    "image_size": 16,
    "patch_size": 8,
    "vit_width": 16,
    "vit_depth": 1,
    "latent_dim": 4,
    "projector_width": 32,
    "history": 2,
    "action_block": 2,
    "predictor_depth": 1,
    "predictor_heads": 2,
    "predictor_head_dim": 4,
    "predictor_mlp": 8,
    "slices": 16,
    "steps": 12,
    "batch_size": 8,
}
