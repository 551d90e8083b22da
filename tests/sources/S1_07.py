strategy = tf.distribute.MirroredStrategy(["GPU:0", "GPU:1"])
def value_fn(ctx):
  return tf.constant(1.)
distributed_values = (
    strategy.experimental_distribute_values_from_function(
      value_fn))
local_result = strategy.experimental_local_results(distributed_values)
local_result
