tf.compat.v1.disable_eager_execution()
