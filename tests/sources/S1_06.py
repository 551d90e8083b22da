experimental_distribute_values_from_function(
    value_fn
)
