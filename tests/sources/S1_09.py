strategy = tf.distribute.MirroredStrategy(["GPU:0", "GPU:1"])
def value_fn(ctx):
  return ctx.num_replicas_in_sync
distributed_values = (
    strategy.experimental_distribute_values_from_function(
      value_fn))
local_result = strategy.experimental_local_results(distributed_values)
local_result
