experimental_distribute_dataset(
    dataset, options=None
)
