tf.distribute.Strategy(
    extended
)
