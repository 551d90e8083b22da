default_strategy = tf.distribute.get_strategy()
