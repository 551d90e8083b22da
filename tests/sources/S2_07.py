strategy = tf.distribute.experimental.MultiWorkerMirroredStrategy()
