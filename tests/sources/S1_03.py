distribute_datasets_from_function(
    dataset_fn, options=None
)
