gather(
    value, axis
)
