ps_strategy = tf.distribute.experimental.ParameterServerStrategy()
