"""Reinforcement learning with a recurrent network as the memory of an agent: PPO on MiniGrid.

torch-ac and sb3-contrib store the memory of an agent in tensors of fixed size and learn step by
step in time; the memory of a MemLSTM grows, and our networks read whole episodes in one pass.
Therefore PPO is implemented here, in four short files.
"""
