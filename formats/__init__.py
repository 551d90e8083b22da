"""Encodings that readers and writers of files share.

crc32c          the checksum of TFRecord files and of TensorFlow's checkpoints
protobuf        the wire format of protocol buffers
sorted_table    tables of keys and values in LevelDB's form
"""
