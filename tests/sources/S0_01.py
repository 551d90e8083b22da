# Import TensorFlow
import tensorflow as tf
