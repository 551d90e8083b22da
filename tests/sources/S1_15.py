reduce(
    reduce_op, value, axis
)
