"""What a tensor is: dtype, device, storage, tensor, promotion, random streams, printing, errors.

Owns the data model and nothing that computes. Must not import ops, autograd, nn or anything above; operators are
installed on `Tensor` by `ops.declare`.
"""
