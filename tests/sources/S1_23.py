strategy = tf.distribute.MirroredStrategy(["gpu:0", "gpu:1"])
@tf.function
def run():
  def value_fn(value_context):
    return tf.constant(value_context.replica_id_in_sync_group)
  distributed_values = (
      strategy.experimental_distribute_values_from_function(
        value_fn))
  def replica_fn(input):
    return tf.distribute.get_replica_context().all_reduce("sum", input)
  return strategy.run(replica_fn, args=(distributed_values,))
result = run()
result
