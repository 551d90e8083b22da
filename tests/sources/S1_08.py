strategy = tf.distribute.MirroredStrategy(["GPU:0", "GPU:1"])
array_value = np.array([3., 2., 1.])
def value_fn(ctx):
  return array_value[ctx.replica_id_in_sync_group]
distributed_values = (
    strategy.experimental_distribute_values_from_function(
      value_fn))
local_result = strategy.experimental_local_results(distributed_values)
local_result
