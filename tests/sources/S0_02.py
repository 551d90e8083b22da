mirrored_strategy = tf.distribute.MirroredStrategy()
