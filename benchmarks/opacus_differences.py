"""Tests of Opacus that are not meant to pass here, by a pattern of their name, each with its reason."""

_AS_THEY_ARE = "LSTM, GRU and MultiheadAttention are trained as they are; nothing replaces them"
_CHECKPOINTS = "a checkpoint holds the ledger, so accountants have no state; schedulers restore their noise too"
_FETCHED = "the test downloads weights, and nothing is fetched"
_TRANSFORMS = "per-sample gradients need no function attached to a module"
_INTERNALS = "the test reads gradients of private records, or the gradient that a step used, from parameters"
_SEEDED = "noise and batches do not follow torch.manual_seed"
_SUMMED = "the test sums its losses under loss_reduction='mean', which is refused"
_TRAINED = "models that expanded weights refuse are trained"
_VANILLA = "max_grad_norm=1e20 is refused (at most 1e12); parameters do not keep the gradient that a step used"

DIFFERENCES = {
    "validators.gru_test.*": _AS_THEY_ARE,
    "validators.lstm_test.*": _AS_THEY_ARE,
    "validators.multihead_attention_test.*": _AS_THEY_ARE,
    "privacy_engine_test.PrivacyEngineTextTest*": "batch_first=False is refused; transpose inside of the model",
    "privacy_engine_test.*.test_validator_weight_update_check": _FETCHED,
    "grad_samples.dp_rnn_test.*": "a packed sequence has no row for each record; pack inside of the model",
    "grad_samples.embedding_bag_test.*": "flat indices have no row for each record; make bags inside of the model",
    "randomness_test.*.test_data_seed_consistency": "batches come from the secure stream, whatever the loader's seed",
    "randomness_test.PrivacyEngineSecureModeTest.*": _SUMMED,
    "privacy_engine_test.*.test_compare_to_vanilla": _VANILLA,
    "privacy_engine_test.*.test_flat_clipping": _INTERNALS,
    "privacy_engine_test.*.test_per_layer_clipping": _INTERNALS,
    "privacy_engine_test.*.test_sample_grad_aggregation": _INTERNALS,
    "privacy_engine_test.*.test_deterministic_run": _SEEDED,
    "batch_memory_manager_test.*.test_equivalent_to_one_batch": _SEEDED,
    "privacy_engine_test.*.test_noise_level": "the test writes weights between steps, which is refused",
    "privacy_engine_test.*.test_checkpoints": _CHECKPOINTS,
    "module_validator_test.*.test_fix": "what `fix` changed is returned by `tacit.gradients.fix`, not logged",
    "module_validator_test.*.test_fix_bn_with_args": "a group of one channel would lose its mean",
    "module_validator_test.*.test_is_valid_non_learnable_bn": "batch statistics mix records, trained or frozen",
    "privacy_engine_validation_test.*.test_*_hooks": _TRANSFORMS,
    "privacy_engine_validation_test.*.test_*hooks_requires_grad": _TRANSFORMS,
    "privacy_engine_validation_test.*.test_*_ew": _TRAINED,
}
