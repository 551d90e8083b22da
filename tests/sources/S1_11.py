experimental_local_results(
    value
)
